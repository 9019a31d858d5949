"""InnerProduct on the overlay: ranges, thresholds, rounding and biases are chosen as for the convolution that it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import chai
from chai.parser.caffemodel import write_caffemodel
from chai.quantizer import Recipe, quantize
from chai.quantizer.observe import observe
from chai.quantizer.weights import LONGEST
from tests.passes.common import CONV, prototxt

SHAPE = (3, 3, 9, 14)
# as AlexNet ends: FC layers of a map, of a row, and scores; one has its weights transposed
NET = f"""
    conv Convolution data -> c : {CONV}
    r1 ReLU c -> c
    pool Pooling c -> p : pooling_param {{ pool: MAX kernel_size: 2 stride: 2 }}
    fc6 InnerProduct p -> f6 : inner_product_param {{ num_output: 20 }}
    r6 ReLU f6 -> f6
    drop6 Dropout f6 -> f6
    fc7 InnerProduct f6 -> f7 : inner_product_param {{ num_output: 12 transpose: true }}
    r7 ReLU f7 -> f7
    drop7 Dropout f7 -> f7
    fc8 InnerProduct f7 -> f8 : inner_product_param {{ num_output: 7 }}
    prob Softmax f8 -> prob
    """
FILES = "net.prototxt", "net.caffemodel"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Weights of a heavy tail, which thresholds at the largest value waste most codes on."""
    rng = np.random.default_rng(0)
    path = tmp_path / "net.prototxt"
    path.write_text(prototxt(NET, SHAPE))
    with chai.Net(path, device="float") as net:
        listed = []
        for layer in net.graph.layers:
            if layer.blobs:
                rows = layer.weight_rows
                values = rng.standard_t(3, rows.shape) * (2 / rows[0].size) ** 0.5
                weights = values.T if layer.name == "fc7" else values
                listed.append((layer.name, layer.type, [weights.astype(np.float32), rng.normal(0, 0.1, len(rows))]))
        named = [(name, type, [np.asarray(blob, np.float32) for blob in blobs]) for name, type, blobs in listed]
    write_caffemodel(tmp_path / "net.caffemodel", "net", named)
    return path, tmp_path / "net.caffemodel"


def batches(count: int = 6) -> list[np.ndarray]:
    return [np.random.default_rng(9 + i).standard_normal(SHAPE).astype(np.float32) for i in range(count)]


def quantised(files: tuple[Path, Path], recipe: Recipe, **options: Any) -> Any:
    return quantize(*files, batches(), files[0].with_name("q.prototxt"), recipe=recipe, **options)


class Own(NamedTuple):
    """What a file says of a layer: formats, weights with outputs first, biases."""

    precision: Any
    rows: np.ndarray
    bias: np.ndarray


def owned(net: chai.Net) -> dict[str, Own]:
    return {x.name: Own(x.precision, x.weight_rows, x.blobs[1]) for x in net.graph.layers if x.blobs}


def layers(result: Any) -> dict[str, Own]:
    with chai.Net(result.prototxt, result.caffemodel, "emulator") as net:
        assert all(net.partition.engine(name) == "fpga" for name in ("conv", "fc6", "fc7"))
        assert net.partition.engine("fc8") == "host"  # scores
        return owned(net)


def test_the_file_has_the_formats_of_their_weights(files: tuple[Path, Path]) -> None:
    quantised_layers = layers(quantised(files, Recipe("after", "mse"), bits=6))
    plain = layers(quantised(files, Recipe("max", "max"), bits=6))
    for name, outputs in (("fc6", 20), ("fc7", 12)):
        p, covering = quantised_layers[name].precision, plain[name].precision
        assert (p.bw_params, len(p.th_params)) == (6, outputs)
        largest = np.abs(quantised_layers[name].rows).max(1)
        assert np.allclose(covering.th_params, largest, rtol=1e-6)
        assert (np.array(p.th_params) < 0.999 * np.array(covering.th_params)).any()
        assert p.th_layer_in <= covering.th_layer_in


@pytest.mark.parametrize(("scheme", "bits"), [("Xilinx", 6), ("DynamicFixed", 8)])
def test_rounding_and_biases_are_theirs(files: tuple[Path, Path], scheme: str, bits: int) -> None:
    """The loaded files give the codes that were judged, and fitted weights and biases make the outputs better."""
    costs = {}
    for recipe in (
        Recipe("max", "max"),
        Recipe("mse", "mse"),
        Recipe("mse", "mse", 0.0, "compensated", "tuned"),
        Recipe("mse", "mse", 0.5),
    ):
        result = quantised(files, recipe, scheme=scheme, bits=bits)
        own = layers(result)
        with chai.Net(*files, "float", keep="all") as net:
            originals = owned(net)
            wanted = [dict(net.forward(batch)) for batch in batches()]
        if recipe.fits:
            assert all((own[name].bias != originals[name].bias).any() for name in ("fc6", "fc7"))
            assert all((own[name].rows != originals[name].rows).any() for name in ("fc6", "fc7"))
            assert all(map(np.array_equal, own["fc8"][1:], originals["fc8"][1:]))
        with chai.Net(result.prototxt, result.caffemodel, "emulator") as net:
            outputs = [net.forward(batch) for batch in batches()]
        p, q = (np.concatenate([np.float64(o["prob"]) for o in each]) for each in (wanted, outputs))
        nats = (p * np.log((p + 1e-12) / (q + 1e-12))).sum(1).mean()
        assert result.built.cost == pytest.approx(nats, rel=1e-3)
        costs[recipe] = nats
    plain, nearest, fitted, _ = costs.values()
    assert fitted < 0.8 * min(nearest, plain), costs


def test_widths(files: tuple[Path, Path]) -> None:
    """A blob that an FC layer on the overlay reads is an operand of the multipliers; scores are read on the host."""
    quantised_layers = layers(quantised(files, Recipe("max", "max"), bits=6, wider={"fc7": 8}))
    widths = {
        name: (p.bw_layer_in, p.bw_params)
        for name in ("conv", "fc6", "fc7")
        for p in [quantised_layers[name].precision]
    }
    assert widths == {"conv": (8, 8), "fc6": (6, 6), "fc7": (8, 8)}
    assert quantised_layers["fc7"].precision.bw_layer_out == 8
    with pytest.raises(chai.UsageError, match="no convolution or InnerProduct 'fc8' on the overlay"):
        quantised(files, Recipe("max", "max"), bits=6, wider={"fc8": 8})


def test_mixed_widths_may_choose_them(files: tuple[Path, Path]) -> None:
    result = quantised(files, Recipe("max", "max"), bits="mixed", budget=1.0)
    assert result.widened.keys() <= {"fc6", "fc7"} and result.widened
    assert all(layers(result)[name].precision.bw_params == 8 for name in result.widened)


def test_what_is_observed(files: tuple[Path, Path]) -> None:
    """A position an image: the rows are the whole inputs, and the sums come before the ReLU."""
    with chai.Net(*files, "float", keep="all") as net:
        data = batches(2)
        seen = observe(chai.passes.rewrite.rewrite(net.graph), [{"data": batch} for batch in data])
        for name, bottom in (("fc6", "p"), ("fc7", "f6"), ("fc8", "f7")):
            (layer,) = (x for x in net.graph.layers if x.name == name)
            for batch, rows, sums in zip(data, seen.in_front[name], seen.rows[name], strict=True):
                net.forward(batch)
                wanted = net.blobs[bottom].reshape(len(batch), -1)
                assert np.array_equal(rows, wanted[None])
                assert np.allclose(sums, wanted @ layer.weight_rows.T + layer.blobs[1], rtol=1e-5, atol=1e-6)


def test_long_rows_are_rounded_part_by_part(files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """fc6 has 4 * 7 * 6 weights in a row; those of AlexNet are longer than LONGEST, too."""
    assert LONGEST < 256 * 6 * 6
    monkeypatch.setattr("chai.quantizer.weights.LONGEST", 90)
    monkeypatch.setattr("chai.quantizer.weights.PART", 70)
    fitted = layers(quantised(files, Recipe("mse", "mse", 0.0, "compensated")))["fc6"]
    with chai.Net(*files, "float", keep="all") as net:
        exact = owned(net)["fc6"].rows
        inputs = np.concatenate([net.forward(batch) and net.blobs["p"] for batch in batches()])
    steps = np.array(fitted.precision.th_params)[:, None] / 127
    nearest = np.clip(np.rint(exact / steps), -127, 127) * steps
    assert np.allclose(fitted.rows / steps, np.rint(fitted.rows / steps), atol=1e-3)
    before, after = (inputs.reshape(len(inputs), -1) @ (rows - exact).T for rows in (nearest, fitted.rows))
    assert (after**2).sum() < 0.5 * (before**2).sum()
