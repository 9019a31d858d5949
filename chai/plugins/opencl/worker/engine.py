"""Compile and run OpenCL kernels on memory that is shared with the process of the network. The only user of pyopencl."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from mmap import mmap
from typing import Any, TypeVar

import numpy as np

from .processor import SYMPTOM, name_processor

T = TypeVar("T")
Spec = Mapping[str, Any]  # see plan.LaunchPlan.spec
CHANNELS = {"float32": "FLOAT", "int8": "SIGNED_INT8"}


class EngineError(Exception):
    """OpenCL refuses something: ``stage`` is the index of the kernel, ``log`` what the compiler says or ""."""

    def __init__(self, message: str, stage: int = 0, log: str = "") -> None:
        super().__init__(message)
        self.stage, self.log = stage, log


class KernelRunner:
    """Programs by number, on the first processor that OpenCL finds, else on its first device.

    Each process has one, which one thread uses at a time. ``own_process``: whether this process runs nothing else, so that
    PoCL's memory may be corrected in it (``processor``).
    """

    def __init__(self, own_process: bool) -> None:
        import pyopencl

        self.cl = pyopencl
        self.own_process = own_process
        self.device = self._device()
        self.queues: dict[int | None, Any] = {}
        self.programs: dict[int, list[_Kernel]] = {}  # the code that removes one releases its memory

    def build(self, number: int, spec: Spec, memory: mmap) -> None:
        """Compile the kernels of a layer for buffers in ``memory``. Raises EngineError."""
        regions = [np.frombuffer(memory, np.uint8, size, offset) for offset, size in spec["regions"]]
        calls = [partial(self._kernel, stage, regions) for stage in spec["stages"]]
        self.programs[number] = [self._tried(index, call) for index, call in enumerate(calls)]

    def run(self, number: int) -> None:
        """Run the kernels of a layer, one after another. Raises EngineError."""
        for index, kernel in enumerate(self.programs[number]):
            self._tried(index, kernel.run)

    def _tried(self, index: int, call: Callable[[], T]) -> T:
        try:
            return call()
        except self.cl.Error as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise EngineError(first, index, str(error)) from None

    def _device(self) -> Any:
        cl = self.cl
        try:
            devices = [device for platform in cl.get_platforms() for device in platform.get_devices()]
        except cl.Error as error:  # no platform is an error of the loader
            raise EngineError(f"OpenCL has no device here: {error}") from None
        if not devices:
            raise EngineError("OpenCL has no device here")
        return next((d for d in devices if d.type & cl.device_type.CPU), devices[0])

    def _kernel(self, stage: Mapping[str, Any], regions: list[Any]) -> _Kernel:
        """Compile a kernel. Raises pyopencl's errors."""
        try:
            return _Kernel(self, stage, regions)
        except self.cl.Error as error:
            if SYMPTOM not in str(error) or not self.own_process or not name_processor(self.device.int_ptr):
                raise
            self.queues.clear()
            return _Kernel(self, stage, regions)

    def queue(self, threads: int | None) -> Any:
        """Return the queue of the device, or of as many of its threads."""
        cl = self.cl
        if threads not in self.queues:
            device = self.device
            if threads is not None and threads < device.max_compute_units:
                split = [cl.device_partition_property.BY_COUNTS, threads]
                device = device.create_sub_devices(split)[0]
            self.queues[threads] = cl.CommandQueue(cl.Context([device]))
        return self.queues[threads]


class _Kernel:
    def __init__(self, engine: KernelRunner, stage: Mapping[str, Any], regions: list[Any]) -> None:
        self.cl = cl = engine.cl
        self.queue = engine.queue(stage["threads"])
        context = self.queue.context
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the compiler's; its errors are raised
            program = cl.Program(context, stage["source"]).build(stage["options"], cache_dir=False)
        self.kernel = cl.Kernel(program, stage["entry"])
        self.sizes, self.local = tuple(stage["sizes"]), tuple(stage["local"]) or None
        self.buffers: list[tuple[Any, Any]] = []
        self.images: list[tuple[Any, Any, tuple[int, ...], bool]] = []
        self.kernel.set_args(*(self._argument(a, regions, context) for a in stage["arguments"]))

    def _argument(self, argument: Mapping[str, Any], regions: list[Any], context: Any) -> Any:
        cl, flags = self.cl, self.cl.mem_flags
        if "value" in argument:
            return np.dtype(argument["type"]).type(argument["value"])
        region = regions[argument["region"]]
        if "shape" in argument:
            shape = tuple(argument["shape"])
            channels = getattr(cl.channel_type, CHANNELS[argument["type"]])
            access = flags.WRITE_ONLY if argument["written"] else flags.READ_ONLY
            image = cl.Image(context, access, cl.ImageFormat(cl.channel_order.R, channels), shape=shape, is_array=True)
            self.images.append((image, region, shape, argument["written"]))
            return image
        buffer = cl.Buffer(context, flags.READ_WRITE | flags.USE_HOST_PTR, hostbuf=region)
        self.buffers.append((buffer, region))
        return buffer

    def run(self) -> None:
        cl, queue = self.cl, self.queue
        for image, region, shape, _ in self.images:  # a top, too: the kernel may leave parts of it
            cl.enqueue_copy(queue, image, region, origin=(0, 0, 0), region=shape)
        self._mapped(cl.map_flags.WRITE)  # what the network wrote is there: the device has to notice
        cl.enqueue_nd_range_kernel(queue, self.kernel, self.sizes, self.local)
        self._mapped(cl.map_flags.READ)
        for image, region, shape, written in self.images:
            if written:
                cl.enqueue_copy(queue, region, image, origin=(0, 0, 0), region=shape)
        queue.finish()

    def _mapped(self, access: int) -> None:
        for buffer, region in self.buffers:
            view, _ = self.cl.enqueue_map_buffer(
                self.queue, buffer, access, 0, region.shape, region.dtype, is_blocking=False
            )
            view.base.release(self.queue)
