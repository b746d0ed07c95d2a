"""Refusals of parts in one line: a table of names, options and files, for models, oracles, encoders and data."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from counterfoil.core.errors import BadData, BadPart, BadSpec, BadWeights, CounterfoilError, LabelMismatch, UnknownName
from counterfoil.parts import registry
from counterfoil.parts.generators.style import build_decoder, build_encoder
from tests import worlds as hub
from tests.fakes import CLASSES
from tests.generators.small import ADMS, save_adm, save_network, save_pipeline, save_run
from tests.parts.datasets.made import idx, png, shard
from tests.parts.editors.conftest import save_stable_diffusion
from tests.parts.language.small_models import encoder_decoder, llama
from tests.parts.models import programs
from tests.parts.models.saved import save_classifier as save_hf
from tests.parts.models.saved import save_model as save_timm
from tests.parts.oracles import saved as small_vlm
from tests.parts.oracles.saved import Fixed, Saying, save_clip, save_openclip
from tests.worlds import FAKES

Made = Callable[[Path], Any]


class Row(NamedTuple):
    """A part by name and options, where `{}` is an empty folder in which `made` writes first, and how it is refused."""

    role: str
    name: str
    error: type[CounterfoilError] | tuple[type[CounterfoilError], ...]
    message: str
    options: Mapping[str, Any] = {}
    made: Made = lambda folder: None


model, oracle, encoder, data, generator = (partial(Row, role) for role in ("model", "oracle", "encoder", "dataset", "generator"))
editor, painter, captioner, rewriter, chat = (
    partial(Row, role) for role in ("editor", "painter", "captioner", "rewriter", "chat")
)


def write(**files: str | bytes) -> Made:
    """Write files; in their names `__` stands for a dot and `_in_` for a slash."""

    def save_into(folder: Path) -> None:
        for name, content in files.items():
            write_file(folder / name.replace("_in_", "/").replace("__", "."), content)

    return save_into


def npz(**arrays: Any) -> Made:
    return lambda folder: np.savez(folder / "a.npz", **arrays)


def tar(files: Mapping[str, bytes], name: str = "x.tar") -> Made:
    return lambda folder: shard(folder / name, files)


def bert(folder: Path) -> None:
    import transformers

    small = {"vocab_size": 10, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    transformers.BertModel(transformers.BertConfig(**small)).save_pretrained(folder)


def put_pickle(save: Made, weights: str, name: str) -> Made:
    """Save the same with a pickle that runs something in place of its weights."""

    def save_into(folder: Path) -> None:
        save(folder)
        (folder / weights).unlink()
        (folder / name).write_bytes(PICKLE)

    return save_into


def change_weights(save: Made, weights: str, change: Callable[[dict[str, torch.Tensor]], Any]) -> Made:
    """Save the same with other weights."""

    def save_into(folder: Path) -> None:
        save(folder)
        state = load_file(folder / weights)
        change(state)
        save_file(state, folder / weights, {"format": "pt"})

    return save_into


def change_config(save: Made, file: str = "config.json", **config: Any) -> Made:
    """Save the same with other entries in its configuration, or without those that are None."""

    def save_into(folder: Path) -> None:
        save(folder)
        found = {**json.loads((folder / file).read_text()), **config}
        (folder / file).write_text(json.dumps({key: value for key, value in found.items() if value is not None}))

    return save_into


def replace_file(save: Made, file: str, content: str | bytes | None = None) -> Made:
    """Save the same with another content of a file, or without it."""

    def save_into(folder: Path) -> None:
        save(folder)
        (folder / file).unlink() if content is None else write_file(folder / file, content)

    return save_into


def write_file(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def without_classifier(state: dict[str, torch.Tensor]) -> None:
    for name in [name for name in state if "classifier" in name]:
        del state[name]


def state_of(name: str, outputs: int = 3) -> Made:
    import timm

    return lambda folder: save_file(timm.create_model(name, num_classes=outputs).state_dict(), folder / "w.safetensors")


def torch_file(content: Any) -> bytes:
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


def onnx(folder: Path) -> None:
    programs.onnx_file(folder / "m.onnx")


def unsized_onnx(folder: Path) -> None:
    programs.onnx_file(folder / "m.onnx", size=None)


def script(folder: Path) -> None:
    programs.script_program(folder / "m.pt")


def export(folder: Path) -> None:
    programs.export_program(folder / "m.pt2")


class Doubling(torch.nn.Module):
    """A program that is no classifier."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs * 2


class PickledCall:
    """A pickle that would make a file in this folder."""

    def __reduce__(self) -> Any:
        return open, ("counterfoil-ran-a-pickle", "w")


def vq(folder: Path) -> None:
    save_network(folder, "VQModel")


def save_adain(folder: Path) -> None:
    for name, network in (("encoder", build_encoder()), ("decoder", build_decoder())):
        save_file(network.state_dict(), folder / f"{name}.safetensors")


MINE = """
from torch import nn

class Painter(nn.Module):
    latent_shape, size = (12,), 16

    def __init__(self, gain):
        super().__init__()
        self.paint = nn.Linear(12, 3 * 16 * 16)

    def decode(self, latents):
        return self.paint(latents).reshape(-1, 3, 16, 16)

class Halves(nn.Module):
    encode = decode = lambda self, rows: rows

def painter(gain=1.0):
    return Painter(gain)

def halves():
    return Halves()

def nothing():
    return 3
"""
PICKLE, DIFFUSERS = pickle.dumps({"weight": PickledCall()}, protocol=2), "diffusion_pytorch_model.safetensors"
STYLE = {name: f"{{}}/{name}.safetensors" for name in ("encoder", "decoder")}
ZEROS, ABC = "0" * 64, ["a", "b", "c"]
NAMES = list(CLASSES)
PLAIN: dict[str, Any] = {"classes": NAMES, "size": 16, "mean": 0, "std": 1}
WRONG = (BadPart, BadSpec, BadData, LabelMismatch)
FLAT = {f"{name}.{ending}": content for name in "ab" for ending, content in (("png", png(1)), ("cls", b"0"))}
FILES: dict[str, bytes] = {"data_in_c1_in_a__png": b"", "data_in_c2_in_a__png": b""}
WEIGHTS = "model.safetensors"
TINY = f"python:{FAKES}:TinyModel"

FOLDERS = [
    data("folder:", BadData, "name a folder"),
    data("folder:{}/nowhere", BadData, "nowhere: no such folder"),
    data("folder:{}/x.zip", BadData, r"x\.zip: not a folder; give one with a sub-folder", made=write(x__zip="")),
    data("folder:{}", BadData, "no images in sub-folders; it needs a sub-folder"),
    data("folder:{}", BadData, "no images in sub-folders; put them in one sub-folder per class", {}, write(a__png="")),
    data("folder:{}", BadData, "only one class, 'cat'", {}, write(cat_in_a__png="")),
    data(
        "folder:{}/data", LabelMismatch, "no name for the folders 'c2'", {"names": "{}/n.csv"},
        write(n__csv="folder,name\nc1,cat\n", **FILES),
    ),
    data(
        "folder:{}/data", LabelMismatch, "'c1' and 'c2' are both named 'cat'", {"names": "{}/n.csv"},
        write(n__csv="folder,name\nc1,cat\nc2,cat\n", **FILES),
    ),
    data("folder:{}", BadSpec, "its options are names", {"name": "x"}),
]  # fmt: skip
TABLES = [
    data("csv:", BadData, "name a file"),
    data("csv:{}/none.csv", BadData, r"none\.csv: image paths and labels cannot be read"),
    data("csv:/dev/zero", BadData, "/dev/zero: image paths and labels cannot be read"),
    *(
        data("csv:{}/x.csv", BadData, message, options, write(x__csv=text))
        for text, message, options in (
            ("", "is empty", {}),
            ("path,label\na.png,\nb.png,cat\n", "line 2: no label", {}),
            ("path,label\n,dog\nb.png,cat\n", "line 2: no path", {}),
            ("path,label\na.png,dog\na.png,cat\n", "'a.png' is listed twice", {}),
            ("path,label\na.png,dog\nb.png,dog\n", "only one class", {}),
            ("path,colour\na.png,red\n", "its columns are path, colour; call them path and label", {}),
            ("a,b,c,d\n1,2,3,4\n", "its columns are a, b, c, d", {}),
            ("path,label\na.png,200000000\nb.png,0\n", "200000000 is no class number, these are below 1,000,000", {}),
            ("path,label\na.png,dog\nb.png,cat\n", r"columns are \[path, label\]", {"columns": ["path", "nothing"]}),
        )
    ),
]
SHARDS = [
    data("webdataset:", BadData, "name tar files"),
    data("webdataset:{}/*.zip", BadData, "no such file"),
    data("webdataset:{}/x-{{0..2}}.tar", BadData, r"no such file: .*x-0\.tar"),
    data("webdataset:x-{{0..999999999}}.tar", BadData, "names more than 100,000 shards"),
    data("webdataset:x-{{0..99999999999999999999}}.tar", BadData, "names more than 100,000 shards"),
    data("webdataset:x" + "{{0..9}}" * 9 + ".tar", BadData, "names more than 100,000 shards"),
    data("webdataset:{}/x.tar", BadData, r"x\.tar: cannot be read as a tar", {}, write(x__tar="not a tar file" * 100)),
    data("webdataset:{}/x.tar.gz", BadData, "gunzip", {}, tar({"a.png": png(0), "a.cls": b"0"}, "x.tar.gz")),
    *(
        data("webdataset:{}/x.tar", BadData, message, options, tar(files))
        for files, message, options in (
            ({"a.png": png(0)}, r"sample 'a' has no label among \.png; give label", {}),
            ({"a.cls": b"0"}, r"sample 'a' has no image among \.cls", {}),
            ({"a.pickle": b"x"}, "no image", {}),
            ({}, "no images", {}),
            (FLAT, "only one class", {}),
            ({**FLAT, "b.jpg": png(2)}, r"sample 'b' has several images among .*give image: the ending", {}),
            ({**FLAT, "a.cls": b"0" * 2**21}, "the label of sample 'a' is a file of 2097152 bytes", {}),
            ({"a.json": b'{"x": 1}', **FLAT}, r"the label of sample 'a' cannot be read from \.json", {"label": "json.y"}),
            ({"a.json": b"[" * 10_000 + b"]" * 10_000, **FLAT}, r"cannot be read from \.json", {"label": "json.x"}),
            ({"a\udcff.png": png(0), "a\udcff.cls": b"1", **FLAT}, r"the name 'x/a\\udcff' is not in UTF-8", {}),
        )
    ),
]
PIXELS = np.zeros((2, 4, 4, 3), dtype=np.uint8)
ARRAYS = [
    data("tensors:", BadData, "name a file or folder"),
    data("tensors:{}/b.npz", BadData, r"b\.npz: no such file"),
    data("tensors:{}/c.safetensors", BadData, r"c\.safetensors: no such file"),
    data("tensors:{}/a.mat", BadData, r"a\.mat: unknown kind of file", {}, write(a__mat="")),
    data("tensors:{}/a.npz", BadData, r"a\.npz: cannot be read as arrays", {}, write(a__npz="nonsense")),
    data("tensors:{}/a.safetensors", BadData, "cannot be read as arrays", {}, write(a__safetensors="nonsense " * 9)),
    data("tensors:{}/a.npz", BadData, "Object arrays cannot be", {}, npz(images=np.array([{}, 1], object), labels=[0, 1])),
    data("tensors:{}/a.npz", BadData, "no array named 'labels'; it has 'images', 'y'", {}, npz(images=PIXELS, y=[0, 1])),
    data("tensors:{}", BadData, "it holds Python objects", {}, lambda at: np.save(at / "images.npy", np.array([{}, 1], object))),
    data("torchvision-data:CIFAR", UnknownName, r"no torchvision data set named 'CIFAR'\. Did you mean 'CIFAR10'"),
    data("torchvision-data:MNIST", BadSpec, "split: input should be 'train' or 'test'", {"split": "valid"}),
    data("torchvision-data:MNIST", BadData, "its test files cannot be read from .*download: true", {"root": "{}"}),
    data("torchvision-data:MNIST", BadData, "torchvision-data:MNIST: its test files cannot be read", {"root": "{}"},
        lambda at: [idx(at / "MNIST" / "raw"), write_file(at / "MNIST/raw/t10k-images-idx3-ubyte", "hello, world")]),
]  # fmt: skip
OTHERS = [
    data("hfdata:", BadData, "name a folder"),
    data("hfdata:{}", BadData, "the folder cannot be read as a data set"),
    data("hfdata:{}", BadData, "streaming needs count", {"streaming": True}),
    data("hfdata:{}", BadData, "count is at least 1", {"count": 0}),
    data("subset:", BadData, "name a data set"),
    *(
        data("subset:folder:{}/data", WRONG, message, options, write(**FILES))
        for options, message in (
            ({"classes": ["c1", "c2"], "groups": {"a": ["c1"], "b": ["c2"]}}, "classes or groups, not both"),
            ({"classes": ["c1", "zebra"]}, "'zebra'"),
            ({"classes": ["c1"]}, "two are needed"),
            ({"groups": {"a": ["oak"], "b": ["elm"]}}, "0 of the 2 groups have a member"),
            ({"per_class": 0}, "at least 1"),
            ({"count": "many"}, "count: input should be a valid integer"),
        )
    ),
]
LIBRARIES = [
    model("timm:", BadPart, "name a model, as in timm:resnet50"),
    model("timm:resnet5O", UnknownName, r"no timm model or folder named 'resnet5O'\. Did you mean 'resnet50'\?"),
    model("timm:test_vit.nonsense", UnknownName, "no weights 'nonsense' for the timm model 'test_vit'; there are r160_in1k"),
    model("timm:{}", BadPart, r"has no config\.json"),
    model("timm:vit_small_patch14_dinov2.lvd142m", BadPart, "has no classifier", {"pretrained": False}),
    model("timm:{}", BadWeights, "SHA-256 is", {"sha256": ZEROS}, save_timm),
    model("timm:{}", BadPart, "5 outputs without names; give classes", {}, change_config(save_timm, label_names=None)),
    model("timm:{}", BadPart, "2 class names for 5 outputs", {"classes": ["a", "b"]}, change_config(save_timm, label_names=None)),
    model("timm:{}", BadWeights, r"model\.bin: refused, it is a pickle", {}, put_pickle(save_timm, WEIGHTS, "pytorch_model.bin")),
    model("timm:{}", BadWeights, r"model\.safetensors: the weights are of another architecture", {},
        change_weights(save_timm, WEIGHTS, lambda state: state.pop("cls_token"))),
    model("timm:test_vit", BadWeights, r"w\.safetensors: .*than VisionTransformer: it lacks cls_token",
        {"weights": "{}/w.safetensors", "classes": ABC}, state_of("test_resnet")),
    model("torchvision:", BadPart, "name a model, as in torchvision:resnet50"),
    model("torchvision:resnet5O", UnknownName, r"no torchvision classifier named 'resnet5O'\. Did you mean 'resnet50'\?"),
    model("torchvision:resnet50/V9", UnknownName, "no weights 'V9' for torchvision's resnet50; there are IMAGENET1K_V1"),
    model("torchvision:squeezenet1_1", BadPart, "2 class names for 1000 outputs", {"classes": ["a", "b"]}),
    model("torchvision:mobilenet_v3_small", BadWeights, "of another architecture than MobileNetV3",
        {"weights": "{}/w.safetensors"}, state_of("test_resnet")),
    model("hf:", BadPart, "as in hf:microsoft/resnet-50"),
    model("hf:./nowhere", BadWeights, "no such folder"),
    model("hf:{}", BadPart, "a bert model is not an image classifier", {}, bert),
    model("hf:{}", BadWeights, "SHA-256 is .*, expected 00000000", {"sha256": ZEROS}, save_hf),
    model("hf:{}", BadPart, "5 outputs without names; give classes", {},
        change_config(save_hf, id2label={str(at): f"LABEL_{at}" for at in range(5)})),
    model("hf:{}", BadPart, "2 class names for 5 outputs", {"classes": ["a", "b"]}, save_hf),
    model("hf:{}", BadPart, "several labels per image", {}, change_config(save_hf, problem_type="multi_label_classification")),
    model("hf:{}", BadWeights, r"lack classifier\.bias, lack classifier\.weight, so they are not a trained ViTFor", {},
        change_weights(save_hf, WEIGHTS, without_classifier)),
    model("hf:{}", BadWeights, r"the weights have another shape of classifier\.weight \(5×7 for 5×32\)", {},
        change_weights(save_hf, WEIGHTS, lambda state: state.update({"classifier.weight": torch.zeros(5, 7)}))),
    model("hf:{}", BadWeights, "refused, it is a pickle", {}, put_pickle(save_hf, WEIGHTS, "pytorch_model.bin")),
    model("hf:{}", BadPart, "'theirs'; it needs code of its own, which is never run", {},
        change_config(save_hf, model_type="theirs", auto_map={"AutoModelForImageClassification": "theirs.Model"})),
    model("hf:{}", BadPart, "has no classes of its own; give classes", {}, save_clip),
    model("hf:{}", BadPart, "'a photo' has no place for the class", {"classes": ABC, "templates": "a photo"}, save_clip),
    model("openclip:{}", BadPart, "has no classes of its own; give classes", {}, save_openclip),
    model("openclip:{}", BadWeights, "expected 00000000", {"classes": ABC, "sha256": ZEROS}, save_openclip),
    oracle("clip:{}", BadPart, r"has no config\.json"),
    oracle("clip:{}", BadPart, "holds a BertModel", {}, bert),
    oracle("clip:{}", BadPart, "'a photo' has no place for the class", {"templates": ["a photo"]}, save_clip),
    oracle("clip:{}", BadWeights, "refused, it is a pickle", {}, put_pickle(save_clip, WEIGHTS, "pytorch_model.bin")),
    oracle("openclip:", BadPart, "name a model, as in openclip:ViT-B-32/openai"),
    oracle("openclip:ViT-B-23/openai", UnknownName, r"no open_clip model or folder named .* Did you mean 'ViT-B-32'\?"),
    oracle("openclip:ViT-B-32/opnai", UnknownName, "no weights or file 'opnai' for the open_clip model ViT-B-32; there are op"),
    oracle("openclip:{}", BadPart, r"has no open_clip_config\.json", {}, write(w__safetensors="")),
    oracle("openclip:{}", BadWeights, r"open_clip_pytorch_model\.bin: refused, it is a pickle", {},
        put_pickle(save_openclip, "open_clip_model.safetensors", "open_clip_pytorch_model.bin")),
    oracle("openclip:{}", BadWeights, r"open_clip_model\.safetensors: the weights are of another architecture", {},
        change_weights(save_openclip, "open_clip_model.safetensors", lambda state: state.pop("visual.proj"))),
]  # fmt: skip
PROGRAMS = [
    model("onnx:{}/none.onnx", BadWeights, "no such file"),
    model("onnx:{}/m.onnx", BadWeights, r"m\.onnx: onnxruntime cannot load it", PLAIN, write(m__onnx="not a graph")),
    model("onnx:{}/m.onnx", BadPart, r"what size of image it takes; give size, as in --set model\.size=224",
        {"classes": NAMES}, unsized_onnx),
    *(
        model("onnx:{}/m.onnx", WRONG, message, {**PLAIN, **options}, onnx)
        for options, message in (
            ({"classes": None}, "4 outputs without names"),
            ({"classes": ["a", "b"]}, "2 class names for 4 outputs"),
            ({"size": 32}, "takes images of 16×16, got size 32"),
            ({"layout": "NHWC"}, "16 channels in the layout NHWC"),
            ({"channels": "grey"}, "3 channels in the layout NCHW, which is not grey"),
            ({"channels": "cmyk"}, "channels: input should be 'rgb', 'bgr' or 'grey'"),
            ({"mean": [1, 2]}, "mean is a number or 3 of them"),
            ({"std": 0}, "std is a number or 3 of them, above 0"),
            ({"scale": -1}, "scale is a positive factor"),
            ({"skip": 3}, "skip leaves out 3 of 4 outputs"),
            ({"output": "x"}, "has no output 'x'; it has 'scores'"),
            ({"scores": "odds"}, "scores: input should be 'auto', 'logits' or 'probabilities'"),
        )
    ),
    *(
        row
        for kind, file, save in (("onnx", "m.onnx", onnx), ("torchscript", "m.pt", script), ("pt2", "m.pt2", export))
        for row in (
            model(f"{kind}:{{}}/{file}x", BadWeights, "no such file", PLAIN),
            model(f"{kind}:{{}}/{file}", BadWeights, "expected 00000000", {**PLAIN, "sha256": ZEROS}, save),
        )
    ),
    model("torchscript:{}/m.pt", BadPart, "give size", {"classes": NAMES}, script),
    model("torchscript:{}/m.pt", BadPart, r"output of shape \(2, 3, 16, 16\) for 2 images", PLAIN,
        lambda at: programs.script_program(at / "m.pt", module=Doubling())),
    model("torchscript:{}/m.pt", BadWeights, "not an exported program, it begins with b'hello'", PLAIN, write(m__pt="hello")),
    model("pt2:{}/m.pt2", BadWeights, "not an exported program, it begins with b'hello'", PLAIN, write(m__pt2="hello")),
    model("torchscript:{}/m.pt", BadWeights, "not a TorchScript program", PLAIN, write(m__pt=torch_file({"w": torch.zeros(3)}))),
    model("pt2:{}/m.pt2", BadWeights, r"m\.pt2: cannot be loaded", PLAIN, write(m__pt2=torch_file({"w": torch.zeros(3)}))),
    encoder("torchscript:{}/none.pt", BadWeights, "no such file"),
]  # fmt: skip
ORACLES = [
    oracle("classifier:", BadPart, "name a model"),
    *(
        oracle(f"classifier:{TINY}", WRONG, message, options)
        for options, message in (
            ({"threshold": 1.5}, "threshold is a probability, from 0 to 1, got 1.5"),
            ({"margin": -0.1}, "margin is a probability"),
            ({"below_threshold": "perhaps"}, "below_threshold: input should be 'reject' or 'abstain'"),
        )
    ),
    oracle("ensemble:x", BadPart, "takes nothing behind the colon"),
    *(
        oracle("ensemble:", WRONG, message, options)
        for options, message in (
            ({"members": [Fixed([[1.0]])]}, "needs two or more members"),
            ({"members": [Fixed([[1.0]])] * 2, "rule": "loudest"}, "rule: input should be 'unanimous', 'majority' or 'mean'"),
            ({"members": [Fixed([[1.0]]), Saying([1], [1], [0])], "rule": "mean"}, "Saying gives no probabilities"),
            ({"members": [Fixed([[1.0]])] * 2, "margin": 0.5}, "belong to the rule mean"),
            ({"members": [{"margin": 0.5}, "clip:a"]}, "a member is an oracle's name"),
        )
    ),
    *(
        oracle("vlm:{}", (BadPart, BadSpec, BadWeights), message, options, small_vlm.save_vlm)
        for options, message in (
            ({"mode": "guess"}, "mode: input should be 'yes-no' or 'choice'"),
            ({"question": "What is it?"}, "has no place for the class; write '{class}'"),
            ({"mode": "choice", "question": "{class}?"}, "write '{choices}'"),
            ({"mode": "choice", "choices": 1}, "choices are from 2 to 26"),
            ({"prompt": "hello"}, "has no place for the question"),
            ({"dtype": "int4"}, "dtype: input should be 'float32', 'bfloat16' or 'float16'"),
            ({"sha256": ZEROS}, "expected 00000000"),
        )
    ),
    oracle("vlm:{}", BadPart, "a clip model is not one that answers questions about images", {}, save_clip),
    oracle("human:{}/a.csv", BadData, "answers cannot be read"),
    oracle("human:{}/a.csv", BadData, "has no column 'answer'", {}, write(a__csv="picture,label\nx,y\n")),
    oracle("human:{}/a.csv", BadData, "has no column 'picture'", {}, write(a__csv="")),
    oracle("human:{}/a.csv", BadData, "line 2: the answer is yes or no, got 'perhaps'", {},
        write(a__csv="picture,label,answer\nx,bag,perhaps\n")),
    model("grouped:", BadPart, "name a model", {"groups": {"a": [0], "b": [1]}}),
    model(f"grouped:{TINY}", BadPart, "give groups"),
    model(f"grouped:{TINY}", BadSpec, "others: input should be 'drop' or 'keep'", {"groups": {"a": [0]}, "others": "lose"}),
    model(f"grouped:{TINY}", LabelMismatch, "model python", {"groups": {"a": ["zebra"], "b": ["ant"]}}),
]  # fmt: skip
DENOISER = f"unet/{DIFFUSERS}"


def flags(**changes: Any) -> dict[str, Any]:
    return {"flags": {**ADMS["improved"], **changes}}


GENERATORS = [
    *(generator("autoencoder:{}", BadSpec, advice, {"size": size}, vq)
      for size, advice in ((50, "use 48 or 52"), (3, "use 4"), (0, "use 4"), (-4, "multiples of 4"))),
    *(generator(f"autoencoder:{name}", BadWeights, "no such folder, and not a hub id")
      for name in ("/no/such/folder", "./nor here", "")),
    generator("autoencoder:{}", BadWeights, r"no config\.json in it", {}, replace_file(vq, "config.json")),
    generator("autoencoder:{}", BadWeights, r"config\.json: ", {}, replace_file(vq, "config.json", "{not json")),
    generator("autoencoder:{}", BadWeights, r"config\.json: ", {}, replace_file(vq, "config.json", "[1, 2]")),
    generator("autoencoder:{}", BadPart, "names the class 'UNet2DModel'; autoencoders are VQModel", {},
        change_config(vq, _class_name="UNet2DModel")),
    generator("autoencoder:{}", BadPart, "names the class None", {}, change_config(vq, _class_name=None)),
    generator("autoencoder:{}", BadPart, "takes 1 channels and gives 3", {}, change_config(vq, in_channels=1)),
    generator("autoencoder:{}", BadWeights, f"no {DIFFUSERS} in it", {}, replace_file(vq, DIFFUSERS)),
    generator(f"autoencoder:{{}}/{DIFFUSERS}", BadWeights, "is a file; give the folder", {}, vq),
    generator("autoencoder:{}", BadWeights, r"the weights lack decoder\.conv_out\.bias, ", {},
        change_weights(vq, DIFFUSERS, lambda state: state.pop("decoder.conv_out.bias"))),
    generator("autoencoder:{}", BadWeights, r"the weights also have extra\.weight, ", {},
        change_weights(vq, DIFFUSERS, lambda state: state.update({"extra.weight": torch.zeros(2)}))),
    generator("autoencoder:{}", BadWeights, DIFFUSERS, {},
        change_weights(vq, DIFFUSERS, lambda state: state.update({"quantize.embedding.weight": torch.zeros(7, 4)}))),
    generator("diffusion:{}", BadWeights, "no scheduler_config.json in it or in its folder scheduler", {},
        replace_file(save_pipeline, "scheduler/scheduler_config.json")),
    generator("diffusion:{}", BadWeights, "not JSON", {},
        replace_file(save_pipeline, "scheduler/scheduler_config.json", "{not json")),
    generator("diffusion:{}", BadPart, "describes no noise by betas", {},
        replace_file(save_pipeline, "scheduler/scheduler_config.json", '{"_class_name": "FlowMatchEulerDiscreteScheduler"}')),
    generator("diffusion:{}", BadWeights, r"the weights lack conv_out\.bias, ", {},
        change_weights(save_pipeline, DENOISER, lambda state: state.pop("conv_out.bias"))),
    *(generator("diffusion:{}", BadPart, message, {}, change_config(save_pipeline, "unet/config.json", **entries))
      for entries, message in (
          ({"_class_name": "UNet2DConditionModel"}, "names the class 'UNet2DConditionModel'; a UNet2DModel is needed"),
          ({"in_channels": 4}, "takes 4 channels"),
          ({"sample_size": [16, 32]}, "the side of its square images is needed"),
          ({"time_embedding_type": "fourier"}, "embedded in another way"),
      )),
    *(generator("diffusion:{}", BadSpec, message, options, save_pipeline)
      for options, message in (
          ({"strength": 0.0}, "between 0 and 1"), ({"strength": 1.0}, "between 0 and 1"), ({"steps": 0}, "at least one"),
          ({"strength": 0.05, "steps": 40}, "take fewer"), ({"steps_per_level": 0}, "at least one step"),
          ({"noising": "none"}, "no noising named 'none'"),
          ({"gradient": "x"}, "no gradient named 'x'"), ({"classes": ["a"]}, "the network knows of none"),
      )),
    *(generator("diffusion:{}", BadSpec, message, options, lambda at: save_pipeline(at, num_class_embeds=5, out_channels=6))
      for options, message in (
          ({}, "their names are not known; give them"), ({"classes": ["a", "b"]}, "2 different class names given for 5"),
          ({"classes": list("aabcd")}, "4 different class names"),
      )),
    *(generator("adm:{}/model.pt", BadWeights, message, flags(**changes), lambda at: save_adm(at, "improved"))
      for changes, message in (
          ({"num_res_blocks": 2}, r"another architecture than AdmUNet: .*put_blocks\."),
          ({"resblock_updown": True}, r"it also has input_blocks\.2\.0\.op\.weight"),
          ({"learn_sigma": False}, r"size mismatch for out\.2\.weight"),
          ({"class_cond": True}, r"no label_emb\.weight"),
      )),
    generator("adm:{}/model.pt", BadSpec, "not named like a released checkpoint", {}, lambda at: save_adm(at, "improved")),
    generator("vqgan:{}", BadSpec, r"size=17: .* multiples of 2; use 16 or 18", {"size": 17}, save_run),
    generator("vqgan:{}/gone.ckpt", BadWeights, r"gone\.ckpt': no such file"),
    generator("vqgan:{}", BadWeights, "no weight file in it or in"),
    generator("vqgan:{}", BadWeights, r"no configuration \(\.yaml\) in it or in .*; give config=", {},
        replace_file(save_run, "model.yaml")),
    generator("vqgan:{}", BadWeights, r"holds model\.yaml and other\.yaml; .*give config=", {},
        replace_file(save_run, "other.yaml", "")),
    generator("vqgan:{}", BadWeights, r"holds best\.ckpt and last\.ckpt; .*give the file itself", {"config": "{}/model.yaml"},
        replace_file(save_run, "best.ckpt", "")),
    *(generator(f"vqgan:{{}}{file}", BadWeights, f"last.ckpt: SHA-256 is .* expected {ZEROS}", {"sha256": ZEROS}, save_run)
      for file in ("", "/last.ckpt")),
    generator("vqgan:{}", BadWeights, "refused, it is a pickle that can run code", {},
        replace_file(save_run, "last.ckpt", PICKLE)),
    *(generator("vqgan:{}", BadWeights, message, {}, partial(save_run, **changes))
      for changes, message in (
          ({"target": "GumbelVQ", "embed_dim": 32}, r"last\.ckpt: .*another architecture"),
          ({"num_res_blocks": 2}, r"lacks encoder\.down_blocks\.0\.resnets\.1\.norm1\.weight"),
          ({"attn_resolutions": []}, r"also has encoder\.down_blocks\.1\.attentions\.0"),
          ({"n_embed": 65}, r"quantize\.embedding\.weight"),
          ({"in_channels": 1}, "in_channels is 1"), ({"double_z": True}, "double_z is True"),
          ({"resamp_with_conv": False}, "resamp_with_conv is False"),
          ({"ch": 20}, "20 channels; it has to be a multiple of 32"),
          ({"n_embed": 0}, "positive, got 0"), ({"n_embed": "many"}, "not a number"), ({"remap": "used.npy"}, "remap"),
      )),
    *(generator("vqgan:{}", BadWeights, r"model\.yaml: (not YAML|has no model\.params\.ddconfig)", {},
          replace_file(save_run, "model.yaml", text))
      for text in ("{not: [yaml", "model: 3", "[1, 2]", "", "model: {params: {n_embed: 3}}")),
    generator("vqgan:{}", BadWeights, "z_channels is missing", {},
        replace_file(save_run, "model.yaml", "model: {params: {n_embed: 64, embed_dim: 16, ddconfig: {ch: 32}}}")),
    *(generator(f"pixels:{rest}", BadSpec, message, options)
      for rest, options, message in (
          ("l1", {}, "no pixel norm named 'l1'"), ("linf", {"epsilon": 0}, "a positive number"),
          ("linf", {"epsilon": -0.1}, "a positive number"), ("linf", {"epsilon": float("nan")}, "number"),
          ("linf", {"epsilon": "eight"}, "write a number"), ("linf", {"epsilon": "8/0"}, "write a number"),
          ("l2", {"epsilon": None, "random_start": True}, "give an epsilon"),
      )),
    *(generator(f"transforms:{rest}", BadSpec, message, options)
      for rest, options, message in (
          ("fogg", {}, "no family of transforms named 'fogg'; did you mean 'fog'"),
          ("zzzz", {}, "they are rotation, .*imagenet-c"), ("fog", {"families": ["hue"]}, "give one of them"),
          ("", {"families": []}, "at least one family"), ("", {"kinds": 0}, "at least one family"),
          ("", {"choose": "some"}, "choose is 'one' .* or 'all'"),
      )),
    generator("style:", BadPart, "no such folder", STYLE, save_adain),
    generator("style:/no/such/folder", BadPart, "no such folder", STYLE, save_adain),
    generator("style:{}", BadPart, "no images in it", STYLE, save_adain),
    generator("style:{}", BadPart, r"style image .*broken\.png", STYLE,
        replace_file(save_adain, "broken.png", b"\x89PNG\r\n\x1a\n broken")),
    *(generator("style:{}", BadWeights, message, {**STYLE, **options}, replace_file(save_adain, "a.png", png(1)))
      for options, message in (
          ({"encoder": "/no/such/file.pth"}, "no such file"), ({"decoder_sha256": ZEROS}, "SHA-256 is"),
          ({"encoder": "{}/decoder.safetensors"}, "another architecture"),
      )),
    generator("style:{}", BadSpec, "at least one", {**STYLE, "styles": 0}, replace_file(save_adain, "a.png", png(1))),
    generator("gan:{}/mine.py:halves", BadPart, "gives a Halves without latent_shape and decode", {}, write(mine__py=MINE)),
    generator("gan:{}/mine.py:gone", BadPart, "has no function 'gone'", {}, write(mine__py=MINE)),
    generator("python:{}/mine.py:nothing", BadPart, "gives a int; a Generator is needed", {}, write(mine__py=MINE)),
    generator("python:/no/such/file.py:factory", BadPart, "no such file"),
    *(generator("gan:{}/mine.py:painter", BadSpec, message, options, write(mine__py=MINE))
      for options, message in (
          ({"options": {"gian": 1}}, r"unexpected keyword argument 'gian'; its options are gain$"),
          ({"candidates": 0}, "inversion: "), ({"steps": -1}, "inversion: "), ({"learning_rate": 0.0}, "inversion: "),
          ({"anchor": -1.0}, "inversion: "),
      )),
    generator("reconstruct:", BadSpec, "name the generator that reconstructs"),
    generator("reconstruct:autoencodr:x", UnknownName, "no generator named 'autoencodr'"),
    generator("reconstruct:autoencoder:/no/such/folder", BadWeights, "no such folder"),
    generator("reconstruct:autoencoder:x", BadSpec, "options are space", {"spce": "code"}),
]  # fmt: skip
UNET = f"unet/{DIFFUSERS}"
EDITORS = [
    editor("lab:diffusio", UnknownName, "did you mean 'diffusion'"),
    editor("p2p:", BadPart, "name a folder"),
    editor("instruct:", BadPart, "name a folder"),
    editor("p2p:/no/such/folder", BadWeights, "no such folder"),
    editor("p2p:{}", BadWeights, "model_index"),
    editor("instruct:{}", BadWeights, r"has no model_index\.json"),
    editor("p2p:{}", BadPart, "T5EncoderModel", {},
        change_config(save_stable_diffusion, "model_index.json", text_encoder=["transformers", "T5EncoderModel"])),
    editor("p2p:{}", BadWeights, r"conv_out\.weight", {},
        change_weights(save_stable_diffusion, UNET, lambda state: state.pop("conv_out.weight"))),
    editor("instruct:{}", BadWeights, r"the weights lack conv_in\.weight, ", {},
        change_weights(save_stable_diffusion, UNET, lambda state: state.pop("conv_in.weight"))),
    *(editor("lab:diffusion", BadSpec, message, options)
      for options, message in (
          ({"stepz": 3}, "steps"), ({"steps": 0}, "steps"), ({"batch": 0}, "batch"), ({"precision": "int8"}, "bfloat16"),
          ({"inversion": "magic"}, "null-text.*negative-prompt"), ({"word_map": "guess"}, "refine.*replace"),
          ({"self_replace": "much"}, "self_replace"), ({"self_replace": []}, "self_replace"),
          ({"self_replace": [1.5]}, "self_replace"), ({"guidance": [float("nan")]}, "guidance"),
          ({"guidance": [1.0, 2.0], "self_replace": [0.4, 0.5, 0.6]}, "one for each"),
          ({"inversion": "edit-friendly", "skip": 1.0}, "skip"),
          ({"inversion": "null-text", "guidance": [1.0, 2.0], "self_replace": [0.4, 0.5]}, "several guidances need"),
          ({"inversion": "ddim", "skip": 0.9}, "skip is no option of ddim inversion, which takes refinements"),
          ({"inversion": "ddim", "source_guidance": 3.5}, "source_guidance is no option of ddim"),
          ({"inversion": "negative-prompt", "inner_steps": 3}, "inner_steps is no option of negative-prompt"),
          ({"inversion": "edit-friendly", "refinements": 1}, "which takes skip and source_guidance"),
      )),
]  # fmt: skip
PAINTERS = [
    painter("diffusers:", BadPart, "name a folder"),
    painter("diffusers:{}", BadWeights, r"has no model_index\.json"),
    painter("diffusers:{}", BadWeights, "NoSuchPipeline", {},
        write(model_index__json='{"_class_name": "NoSuchPipeline", "_diffusers_version": "0.40"}')),
    painter("diffusers:{}", BadWeights, r"the weights lack conv_out\.bias, ", {},
        change_weights(save_stable_diffusion, UNET, lambda state: state.pop("conv_out.bias"))),
    painter("diffusers:{}", BadWeights, "safetensors", {},
        put_pickle(save_stable_diffusion, UNET, "unet/diffusion_pytorch_model.bin")),
    painter("lab:diffusion", BadPart, "no scheduler", {"scheduler": "NoSuchScheduler"}),
]  # fmt: skip
LANGUAGE = [
    captioner("captions:nowhere.jsonl", BadData, r"nowhere\.jsonl: cannot be read"),
    *(captioner(f"captions:{{}}/a.{ending}", BadData, message, {}, write(**{f"a__{ending}": text}))
      for ending, text, message in (
          ("jsonl", "{", "line 1: not JSON"), ("jsonl", "[1]", "not an object"), ("jsonl", "", "holds no captions"),
          ("csv", "name,words\n1,a dog\n", "image_id and caption are needed"), ("json", "[]", "neither COCO"),
      )),
    captioner("blip:{}", BadPart, "is not one that answers questions about images", {}, llama),
    captioner("blip:{}", BadPart, "min_tokens is at least 0", {"min_tokens": 9, "max_tokens": 3}, encoder_decoder),
    captioner("blip:./nowhere", BadWeights, "no such folder"),
    rewriter("lexicon:german", BadPart, "no such word lists"),
    rewriter("lexicon:", BadPart, "at least 1", {"proposals": 0}),
    rewriter("lexicon:", BadSpec, "its options are proposals, kinds", {"wordnet": "/usr/share/wordnet"}),
    *(rewriter("llm:{}", error, message, options, llama)
      for error, message, options in (
          (BadPart, "styles are instruct", {"style": "poetic"}), (BadPart, "temperature", {"temperature": -1}),
          (BadPart, "at least 1", {"proposals": 0}), (BadWeights, r"has no adapter_config\.json", {"adapter": "{}"}),
      )),
    rewriter("openai:", BadPart, "name a model"),
    rewriter("openai:tiny", BadPart, "take the password out", {"base_url": "http://me:secret@host/v1"}),
    chat("vlm:{}", BadPart, "at least 1", {"max_tokens": 0}, small_vlm.save_vlm),
    *(model("http://host/", (BadPart, BadSpec), message, {"classes": ["a", "b"], **options})
      for options, message in (
          ({"batch": 0}, "batch is the number of images per request"), ({"batch": 1.5}, "batch: input should be a valid integer"),
          ({"size": 100_000}, "size is from 1 to 16384"),
      )),
]  # fmt: skip
ALL = [*EDITORS, *PAINTERS, *LANGUAGE, *GENERATORS, *FOLDERS, *TABLES, *SHARDS, *ARRAYS, *OTHERS, *LIBRARIES, *PROGRAMS, *ORACLES]


def fill_in(value: Any, folder: Path) -> Any:
    """The value with the folder's name in place of `{}`."""
    return value.replace("{}", str(folder)) if isinstance(value, str) and value.startswith("{}") else value


@pytest.mark.parametrize("row", ALL, ids=[f"{row.role} {row.name[:30]} {row.message[:40]}" for row in ALL])
def test_it_is_refused_in_one_line(row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.offline(monkeypatch, tmp_path / "cache")
    (tmp_path / "given").mkdir()
    row.made(tmp_path / "given")
    name = row.name.replace("{}", str(tmp_path / "given")).replace("{{", "{").replace("}}", "}")
    options = {key: fill_in(value, tmp_path / "given") for key, value in row.options.items()}
    with pytest.raises(row.error, match=row.message) as caught:
        registry.create(row.role, name, options)
    assert not Path("counterfoil-ran-a-pickle").exists()
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 900


@pytest.mark.parametrize("name", [f"classifier:{TINY}", "human:", "clip:{}", "vlm:{}"])
def test_an_oracle_has_to_be_bound_before_it_judges(name: str, tmp_path: Path) -> None:
    save: Made = {"clip": save_clip, "vlm": small_vlm.save_vlm}.get(name.partition(":")[0], lambda folder: None)
    save(tmp_path)
    with pytest.raises(BadPart, match="bind it to class names before it judges"):
        registry.create("oracle", name.replace("{}", str(tmp_path))).judge(torch.zeros(1, 3, 32, 32), torch.tensor([0]))
