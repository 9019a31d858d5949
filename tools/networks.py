"""Write the regular networks of prototxt/, whose layers follow a pattern.

    python tools/networks.py            # writes them
    python tools/networks.py --check    # exit code 1 if a file differs from the generated one

Layers and blobs have their published names, so that published weights fit.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "prototxt"


class Writer:
    """Writes one prototxt, layer by layer; ``blob`` is the top that the next layer reads by default."""

    def __init__(self, about: str, name: str, channels: int, height: int, width: int) -> None:
        lines = "".join(f"# {line}\n" for line in about.splitlines())
        shape = f"dim: 1 dim: {channels} dim: {height} dim: {width}"
        self.parts = [f'{lines}\nname: "{name}"\n']
        self.blob = "data"
        self.add("data", "Input", f"input_param {{ shape {{ {shape} }} }}", bottoms=())

    def add(
        self, name: str, type: str, params: str = "", bottoms: Sequence[str] | None = None, top: str | None = None
    ) -> str:
        """Add a layer and return its top, which has the layer's name by default."""
        bottoms = (self.blob,) if bottoms is None else bottoms
        self.blob = top or name
        ports = "".join(f' bottom: "{b}"' for b in bottoms) + f' top: "{self.blob}"'
        tail = f"\n  {params}\n}}\n" if params else " }\n"
        self.parts.append(f'layer {{ name: "{name}" type: "{type}"{ports}{tail}')
        return self.blob

    def note(self, text: str) -> None:
        self.parts.append(f"\n# {text}\n")

    def inplace(self, name: str, type: str, params: str = "") -> str:
        return self.add(name, type, params, top=self.blob)

    def conv(
        self,
        name: str,
        outputs: int,
        kernel: int,
        pad: int = 0,
        stride: int = 1,
        group: int = 1,
        bias: bool = True,
        dilation: int = 1,
        bottoms: Sequence[str] | None = None,
    ) -> str:
        fields = [f"num_output: {outputs} kernel_size: {kernel}"]
        fields += [f"pad: {pad}"] * (pad > 0) + [f"stride: {stride}"] * (stride > 1)
        fields += [f"group: {group}"] * (group > 1) + [f"dilation: {dilation}"] * (dilation > 1)
        fields += ["bias_term: false"] * (not bias)
        return self.add(name, "Convolution", f"convolution_param {{ {' '.join(fields)} }}", bottoms)

    def pool(self, name: str, kernel: int, stride: int, pad: int = 0, kind: str = "MAX") -> str:
        padding = f" pad: {pad}" if pad else ""
        return self.add(
            name, "Pooling", f"pooling_param {{ pool: {kind} kernel_size: {kernel} stride: {stride}{padding} }}"
        )

    def normalised(self, bn: str, scale: str, eps: str = "") -> None:
        self.inplace(bn, "BatchNorm", f"batch_norm_param {{ use_global_stats: true{eps} }}")
        self.inplace(scale, "Scale", "scale_param { bias_term: true }")

    def dense(self, name: str, outputs: int) -> str:
        return self.add(name, "InnerProduct", f"inner_product_param {{ num_output: {outputs} }}")

    def text(self) -> str:
        return "".join(self.parts)


def resnet50() -> str:
    w = Writer(
        "ResNet-50 for 1000 ImageNet classes, He et al., arXiv:1512.03385; 3.858 billion\n"
        "multiply-accumulates per image. Layer and blob names are those of\n"
        "ResNet-50-deploy.prototxt of KaimingHe/deep-residual-networks.",
        "ResNet-50",
        3,
        224,
        224,
    )

    def branch(block: str, which: str, outputs: int, kernel: int, stride: int) -> str:
        blob = w.conv(f"res{block}_branch{which}", outputs, kernel, kernel // 2, stride, bias=False)
        w.normalised(f"bn{block}_branch{which}", f"scale{block}_branch{which}")
        return blob

    w.conv("conv1", 64, 7, 3, 2)
    w.normalised("bn_conv1", "scale_conv1")
    w.inplace("conv1_relu", "ReLU")
    w.pool("pool1", 3, 2)
    for stage, blocks, width in ((2, 3, 64), (3, 4, 128), (4, 6, 256), (5, 3, 512)):
        w.note(f"Stage {stage}: {blocks} blocks, {4 * width} channels.")
        for letter in "abcdef"[:blocks]:
            block, stride, source = f"{stage}{letter}", 2 if letter == "a" and stage > 2 else 1, w.blob
            shortcut = branch(block, "1", 4 * width, 1, stride) if letter == "a" else source
            w.blob = source
            for which, outputs, kernel, step in (("2a", width, 1, stride), ("2b", width, 3, 1)):
                branch(block, which, outputs, kernel, step)
                w.inplace(f"res{block}_branch{which}_relu", "ReLU")
            w.add(f"res{block}", "Eltwise", bottoms=(shortcut, branch(block, "2c", 4 * width, 1, 1)))
            w.inplace(f"res{block}_relu", "ReLU")
    w.note("Classifier.")
    w.pool("pool5", 7, 1, kind="AVE")
    w.dense("fc1000", 1000)
    w.add("prob", "Softmax")
    return w.text()


def _vgg(w: Writer) -> None:
    """Add conv1_1 to conv5_3 with their ReLUs and the pools between them."""
    for stage, (convolutions, channels) in enumerate(((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)), 1):
        for i in range(1, convolutions + 1):
            w.conv(f"conv{stage}_{i}", channels, 3, 1)
            w.inplace(f"relu{stage}_{i}", "ReLU")
        if stage < 5:
            w.pool(f"pool{stage}", 2, 2)


def vgg16() -> str:
    w = Writer(
        "VGG with 16 layers for 1000 ImageNet classes, Simonyan and Zisserman,\n"
        "arXiv:1409.1556; 15.47 billion multiply-accumulates per image. Layer and blob names\n"
        "are those of VGG_ILSVRC_16_layers_deploy.prototxt (gist ksimonyan/211839e770f7b538e2d8).",
        "VGG_ILSVRC_16_layers",
        3,
        224,
        224,
    )
    _vgg(w)
    w.pool("pool5", 2, 2)
    w.note("Classifier.")
    for number in (6, 7):
        w.dense(f"fc{number}", 4096)
        w.inplace(f"relu{number}", "ReLU")
        w.inplace(f"drop{number}", "Dropout", "dropout_param { dropout_ratio: 0.5 }")
    w.dense("fc8", 1000)
    w.add("prob", "Softmax")
    return w.text()


_MOBILE = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))


def mobilenet_v1() -> str:
    w = Writer(
        "MobileNet v1, width 1.0, for 1000 ImageNet classes, Howard et al., arXiv:1704.04861;\n"
        "568.7 million multiply-accumulates per image. Layer and blob names are those of\n"
        'mobilenet_deploy.prototxt of shicai/MobileNet-Caffe. There is no InnerProduct: "prob" is\n'
        "1x1000x1x1.",
        "MOBILENET",
        3,
        224,
        224,
    )

    def conv(name: str, relu: str, outputs: int, kernel: int, stride: int, group: int = 1) -> None:
        w.conv(name, outputs, kernel, kernel // 2, stride, group, bias=False)
        w.normalised(f"{name}/bn", f"{name}/scale", " eps: 1e-5")
        w.inplace(relu, "ReLU")

    conv("conv1", "relu1", 32, 3, 2)
    stages = ("2_1", "2_2", "3_1", "3_2", "4_1", "4_2", *(f"5_{i}" for i in range(1, 7)), "6")
    channels = 32
    for name, (outputs, stride) in zip(stages, _MOBILE):
        conv(f"conv{name}/dw", f"relu{name}/dw", channels, 3, stride, channels)
        conv(f"conv{name}/sep", f"relu{name}/sep", outputs, 1, 1)
        channels = outputs
    w.note("Classifier.")
    w.add("pool6", "Pooling", "pooling_param { pool: AVE global_pooling: true }")
    w.conv("fc7", 1000, 1)
    w.add("prob", "Softmax")
    return w.text()


def _ssd(
    w: Writer,
    sources: Sequence[tuple[str, str]],
    kernel: int,
    detection: str,
    classes: int = 21,
) -> None:
    """Add SSD's heads: locations, confidences and priors for each source (blob, fields of its prior_box_param)."""
    order = "permute_param { order: 0 order: 2 order: 3 order: 1 }"
    for blob, fields in sources:
        w.note(f"Boxes of {blob}.")
        ratios = fields.count("aspect_ratio")
        boxes = 1 + 2 * ratios + ("max_size" in fields)  # min_size, ratios and their inverses, and max_size
        for head, outputs in (("loc", 4 * boxes), ("conf", classes * boxes)):
            w.conv(f"{blob}_mbox_{head}", outputs, kernel, kernel // 2, bottoms=(blob,))
            w.add(f"{blob}_mbox_{head}_perm", "Permute", order)
            w.add(f"{blob}_mbox_{head}_flat", "Flatten", "flatten_param { axis: 1 }")
        variance = "variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2"
        prior = f"prior_box_param {{ {fields} flip: true clip: false {variance} offset: 0.5 }}"
        w.add(f"{blob}_mbox_priorbox", "PriorBox", prior, (blob, "data"))
    w.note("All boxes.")
    for name, tail, axis in (("loc", "loc_flat", 1), ("conf", "conf_flat", 1), ("priorbox", "priorbox", 2)):
        bottoms = [f"{blob}_mbox_{tail}" for blob, _ in sources]
        w.add(f"mbox_{name}", "Concat", f"concat_param {{ axis: {axis} }}", bottoms)
    w.blob = "mbox_conf"
    w.add("mbox_conf_reshape", "Reshape", f"reshape_param {{ shape {{ dim: 0 dim: -1 dim: {classes} }} }}")
    w.add("mbox_conf_softmax", "Softmax", "softmax_param { axis: 2 }")
    w.add("mbox_conf_flatten", "Flatten", "flatten_param { axis: 1 }")
    params = f"num_classes: {classes} share_location: true background_label_id: 0 code_type: CENTER_SIZE {detection}"
    bottoms = ["mbox_loc", "mbox_conf_flatten", "mbox_priorbox"]
    w.add("detection_out", "DetectionOutput", f"detection_output_param {{ {params} }}", bottoms)


def _prior(low: int, high: int, ratios: int, step: int = 0) -> str:
    sides = f"min_size: {low}" + (f" max_size: {high}" if high else "")
    return sides + " aspect_ratio: 2" + " aspect_ratio: 3" * (ratios > 1) + (f" step: {step}" if step else "")


def mobilenet_ssd() -> str:
    w = Writer(
        "MobileNet-SSD for the 20 PASCAL VOC classes and a background; 1.15 billion\n"
        "multiply-accumulates per image. Layer and blob names are those of\n"
        "MobileNetSSD_deploy.prototxt of chuanqi305/MobileNet-SSD, in which every BatchNorm is\n"
        "merged into its convolution.",
        "MobileNet-SSD",
        3,
        300,
        300,
    )

    def conv(name: str, outputs: int, kernel: int, stride: int = 1, group: int = 1) -> None:
        w.conv(name, outputs, kernel, kernel // 2, stride, group)
        w.inplace(f"{name}/relu", "ReLU")

    conv("conv0", 32, 3, 2)
    channels = 32
    for i, (outputs, stride) in enumerate(_MOBILE, 1):
        conv(f"conv{i}/dw", channels, 3, stride, channels)
        conv(f"conv{i}", outputs, 1)
        channels = outputs
    for i, outputs in enumerate((512, 256, 256, 128), 14):
        conv(f"conv{i}_1", outputs // 2, 1)
        conv(f"conv{i}_2", outputs, 3, 2)
    sources = [("conv11", _prior(60, 0, 1)), ("conv13", _prior(105, 150, 2))]
    sides = (150, 195, 240, 285, 300)
    sources += [(f"conv{i}_2", _prior(sides[i - 14], sides[i - 13], 2)) for i in range(14, 18)]
    nms = "nms_param { nms_threshold: 0.45 top_k: 100 } keep_top_k: 100 confidence_threshold: 0.25"
    _ssd(w, sources, 1, nms)
    return w.text()


def vgg_ssd300() -> str:
    w = Writer(
        "SSD on VGG at 300x300 for the 20 PASCAL VOC classes and a background, Liu et al.,\n"
        "arXiv:1512.02325; 31.4 billion multiply-accumulates per image. Layer and blob names are\n"
        "those of models/VGGNet/VOC0712/SSD_300x300/deploy.prototxt of weiliu89/caffe, branch ssd.",
        "VGG_VOC0712_SSD_300x300_deploy",
        3,
        300,
        300,
    )
    _vgg(w)
    w.pool("pool5", 3, 1, 1)
    w.note("fc6 and fc7 of VGG as convolutions, and smaller and smaller maps.")
    w.conv("fc6", 1024, 3, 6, dilation=6)
    w.inplace("relu6", "ReLU")
    w.conv("fc7", 1024, 1)
    w.inplace("relu7", "ReLU")
    for i, (outputs, stride) in enumerate(((512, 2), (256, 2), (256, 1), (256, 1)), 6):
        w.conv(f"conv{i}_1", outputs // 2, 1)
        w.inplace(f"conv{i}_1_relu", "ReLU")
        w.conv(f"conv{i}_2", outputs, 3, stride - 1, stride)
        w.inplace(f"conv{i}_2_relu", "ReLU")
    norm = 'norm_param { across_spatial: false channel_shared: false scale_filler { type: "constant" value: 20 } }'
    w.add("conv4_3_norm", "Normalize", norm, ("conv4_3",))
    maps = [("conv4_3_norm", 8, 1), ("fc7", 16, 2), ("conv6_2", 32, 2), ("conv7_2", 64, 2)]
    maps += [("conv8_2", 100, 1), ("conv9_2", 300, 1)]
    sides = (30, 60, 111, 162, 213, 264, 315)
    sources = [(blob, _prior(sides[i], sides[i + 1], n, step)) for i, (blob, step, n) in enumerate(maps)]
    _ssd(w, sources, 3, "nms_param { nms_threshold: 0.45 top_k: 400 } keep_top_k: 200 confidence_threshold: 0.01")
    return w.text()


def yolov2_tiny() -> str:
    w = Writer(
        "Tiny YOLO v2 for the 20 PASCAL VOC classes, Redmon and Farhadi, arXiv:1612.08242, after\n"
        "cfg/yolov2-tiny-voc.cfg of pjreddie/darknet, up to its last convolution: 13x13 cells of\n"
        "5 boxes with 4 + 1 + 20 values each, before the region layer; 3.49 billion\n"
        "multiply-accumulates per image. The names of layers are chai's own.",
        "yolov2-tiny-voc",
        3,
        416,
        416,
    )

    def conv(number: int, outputs: int) -> None:
        w.conv(f"conv{number}", outputs, 3, 1, bias=False)
        w.normalised(f"bn{number}", f"scale{number}")
        w.inplace(f"leaky{number}", "ReLU", "relu_param { negative_slope: 0.1 }")

    for number in range(1, 6):
        conv(number, 2 ** (number + 3))
        w.pool(f"pool{number}", 2, 2)
    conv(6, 512)
    w.note("darknet's pool of stride 1 keeps 13x13: window i is [i, i + 1], clipped to the image.")
    w.pool("pool6/padded", 2, 1, 1)
    w.add("pool6", "Crop", "crop_param { axis: 2 offset: 1 }", ("pool6/padded", "conv6"))
    conv(7, 1024)
    conv(8, 1024)
    w.conv("conv9", 125, 1)
    return w.text()


NETWORKS: tuple[Callable[[], str], ...] = (
    resnet50,
    vgg16,
    mobilenet_v1,
    mobilenet_ssd,
    vgg_ssd300,
    yolov2_tiny,
)


def main() -> int:
    """Write the files, or check them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = 0
    for network in NETWORKS:
        path, text = FOLDER / f"{network.__name__}.prototxt", network()
        if check and (not path.is_file() or path.read_text() != text):
            print(f"{path.name} is not what tools/networks.py writes")
            stale += 1
        elif not check:
            path.write_text(text)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
