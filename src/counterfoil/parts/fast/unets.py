"""The layers of diffusers' UNets with as few passes over activations as can be, and pipelines made fast.

Convolutions aside, a residual block of the library passes over an activation some thirty times: it turns the layout around for
every normalisation and back, and adds biases, time and shortcut one by one. Here it is nine times. The way into and out of
attention turns no layout and adds no bias by itself, and a gate is one pass. Weights are the layers' own. Under a compiler, which
joins passes by itself, layers are as they were.

A network is made fast in its place: it computes in another dtype, its convolutions' weights are laid out with channels last, its
blocks run fused, and it is compiled if that is asked for. What comes and goes keeps its dtype, so its callers need not know.
The weights as they were are kept; `undo` puts them back bit for bit. Of a pipeline, latents, the scheduler's arithmetic and the
texts' embeddings stay in float32.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from counterfoil.parts import weights
from counterfoil.parts.fast import coders, dtypes, layers, passes
from counterfoil.parts.fast.compiling import Compiled

WIDEST = 2048  # channels; with more of them a program would hold more than its registers, and the activations are small

DENOISERS = ("unet", "transformer", "transformer_2")

Replaced = tuple[nn.Module, str]
"""A method of a module that something faster stands in for."""


def fuse_on(network: nn.Module, device: torch.device, dtype: torch.dtype) -> list[Replaced]:
    """Fuse a network that is on a GPU and in bf16, where there are kernels for it; what was replaced."""
    return fuse(network) if device.type == "cuda" and dtype == torch.bfloat16 and passes.has_triton(device) else []


def fuse(network: nn.Module) -> list[Replaced]:
    """Let the layers of a frozen network run fused, where they are known; what was replaced."""
    replaced: list[Replaced] = []
    inside: set[nn.Module] = set()
    for module in network.modules():  # a block comes before what is in it
        if type(module).__name__ == "ResnetBlock2D" and _plain(module):
            inside.update(module.modules())
        for name, fast in _stand_ins(module, inside):
            setattr(module, name, fast)
            replaced.append((module, name))
    return replaced


def unfuse(replaced: list[Replaced]) -> None:
    """The layers as they were."""
    for module, name in replaced:
        delattr(module, name)


def _stand_ins(module: Any, inside: set[nn.Module]) -> Iterator[tuple[str, Any]]:
    kind = type(module).__name__
    if kind == "ResnetBlock2D" and module in inside:
        yield "forward", FusedResidual(module)
    elif type(module) is nn.GroupNorm and module.affine and module not in inside:
        yield "forward", FusedNorm(module)
    elif kind == "GEGLU":
        yield "forward", FusedGate(module)
    elif kind == "Transformer2DModel" and module.is_input_continuous:
        yield "_operate_on_continuous_inputs", FusedEntry(module)
        yield "_get_output_for_continuous_inputs", FusedExit(module)


class FusedNorm:
    """Stands in for the `forward` of a group normalisation."""

    def __init__(self, module: nn.GroupNorm) -> None:
        self.own = module.forward
        self.norm = coders.norm_of(module)

    def __call__(self, x: Tensor) -> Tensor:
        if torch.compiler.is_compiling() or x.dim() != 4:
            return self.own(x)
        return normalise(x, self.norm, silu=False)


class FusedResidual:
    """Stands in for the `forward` of a residual block that is told the time."""

    def __init__(self, block: Any) -> None:
        self.own, self.block = block.forward, block
        self.norm1, self.norm2 = coders.norm_of(block.norm1), coders.norm_of(block.norm2)
        self.bias = block.conv2.bias.detach().float()
        if block.conv_shortcut is not None and block.conv_shortcut.bias is not None:
            self.bias = self.bias + block.conv_shortcut.bias.detach().float()

    def __call__(self, input_tensor: Tensor, temb: Tensor | None = None, *given: Any, **named: Any) -> Any:
        if torch.compiler.is_compiling():
            return self.own(input_tensor, temb, *given, **named)
        block = self.block
        between = block.conv1.bias[None].expand(len(input_tensor), -1)
        if block.time_emb_proj is not None and temb is not None:
            between = between + block.time_emb_proj(temb if block.skip_time_act else F.silu(temb))  # (N, C)
        x = F.conv2d(normalise(input_tensor, self.norm1, silu=True), block.conv1.weight, padding=1)
        change = F.conv2d(normalise(x, self.norm2, silu=True, pending=between), block.conv2.weight, padding=1)
        around = input_tensor if block.conv_shortcut is None else F.conv2d(input_tensor, block.conv_shortcut.weight)
        return _JoinPass.apply(around, change, self.bias)


class FusedGate:
    """Stands in for the `forward` of a GEGLU."""

    def __init__(self, module: Any) -> None:
        self.own, self.module = module.forward, module

    def __call__(self, hidden_states: Tensor, *given: Any, **named: Any) -> Any:
        if torch.compiler.is_compiling() or torch.is_grad_enabled() or not hidden_states.is_cuda:
            return self.own(hidden_states, *given, **named)
        return passes.gate_by_gelu(self.module.proj(hidden_states))


class FusedEntry:
    """Stands in for the way of an image into a transformer: normalised, projected, its pixels as tokens."""

    def __init__(self, module: Any) -> None:
        self.own, self.module = module._operate_on_continuous_inputs, module

    def __call__(self, hidden_states: Tensor) -> Any:
        if torch.compiler.is_compiling():
            return self.own(hidden_states)
        tokens = layers.to_tokens(self.module.norm(hidden_states))  # (N, P, C), as it lies
        inner = _project(tokens, self.module.proj_in)
        return inner, inner.shape[-1]


class FusedExit:
    """Stands in for the way out of a transformer: projected, laid out as an image with channels last, added."""

    def __init__(self, module: Any) -> None:
        self.own, self.module = module._get_output_for_continuous_inputs, module

    def __call__(self, hidden_states: Tensor, residual: Tensor, height: int, width: int, **named: Any) -> Any:
        if torch.compiler.is_compiling():
            return self.own(hidden_states=hidden_states, residual=residual, height=height, width=width, **named)
        out = _project(hidden_states, self.module.proj_out)
        return layers.to_image(out, residual) + residual


def _project(tokens: Tensor, projection: nn.Module) -> Tensor:
    """Tokens through a linear layer, or through a 1×1 convolution as one."""
    weight, bias = projection.weight, projection.bias
    assert isinstance(weight, Tensor) and (bias is None or isinstance(bias, Tensor))
    return F.linear(tokens, weight.flatten(1), bias)


def normalise(x: Tensor, norm: layers.Norm, *, silu: bool, pending: Tensor | None = None) -> Tensor:
    """x + pending normalised, and through SiLU if wanted; differentiable in x.  # (N, C, H, W), (N, C)"""
    if x.shape[1] > WIDEST:
        x = x if pending is None else x + pending[:, :, None, None]
        plain = F.group_norm(x, norm.groups, norm.gain.to(x.dtype), norm.bias.to(x.dtype), norm.epsilon)
        return F.silu(plain) if silu else plain
    if pending is None:
        return layers.normalise(x, norm, None, silu=silu)
    with torch.no_grad():  # it moves the means and costs no pass
        partials = passes.moments(x)
        partials[:, :, 0] += pending[:, None]
        coefficients = norm.coefficients(x, partials)
        coefficients[:, 1::2] += coefficients[:, ::2] * pending[:, None]
    found: Tensor = layers.NormPass.apply(x, coefficients, norm, silu)
    return found


class _JoinPass(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, around: Tensor, change: Tensor, bias: Tensor) -> Tensor:
        return passes.join(around, change, bias)[0]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        return gradient, gradient, None


def _plain(block: Any) -> bool:
    """True if a residual block does what `FusedResidual` does and nothing else."""
    convolutions = [block.conv1, block.conv2, *([] if block.conv_shortcut is None else [block.conv_shortcut])]
    return bool(
        type(block.nonlinearity) is nn.SiLU
        and block.time_embedding_norm == "default"
        and block.upsample is None
        and block.downsample is None
        and block.output_scale_factor == 1
        and all(type(each) is nn.Conv2d and each.groups == 1 for each in convolutions)
        and block.conv1.bias is not None
        and block.conv2.bias is not None
        and all(type(each) is nn.GroupNorm and each.affine for each in (block.norm1, block.norm2))
        and not block.training
    )


class AcceleratedNetwork:
    """Stands in for the `forward` of a network.

    Calls with a gradient are never compiled: their rows leave one by one, and each number of them would be compiled for.
    """

    def __init__(
        self, network: nn.Module, dtype: torch.dtype, *, device: torch.device, name: str, compiled: bool = False
    ) -> None:
        self.network, self.dtype = network, dtype
        self._originals = _floating(network)
        nn.Module.to(network, device=device, dtype=dtype)  # classes of libraries may warn of a dtype that they did not choose
        if device.type == "cuda" and all(tensor.dim() < 5 for tensor in network.parameters()):
            nn.Module.to(network, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._fused = fuse_on(network, device, dtype)
        self._forward: Callable[..., Any] = network.forward
        self._compiled: Callable[..., Any] = Compiled(network.forward, name=name) if compiled else network.forward
        self._aside = False
        network.forward = self

    def __call__(self, *given: Any, **named: Any) -> Any:
        values = (*given, *named.values())
        work = self._forward if self._aside or torch.is_grad_enabled() else self._compiled
        answer = work(*cast(given, self.dtype, least=2), **cast(named, self.dtype, least=2))
        return cast(answer, _dtype_of(values))

    @contextlib.contextmanager
    def without_compiler(self) -> Iterator[None]:
        """The network as it is, for those who change it from call to call and would have it compiled each time."""
        before, self._aside = self._aside, True
        try:
            yield
        finally:
            self._aside = before

    @contextlib.contextmanager
    def originals(self) -> Iterator[None]:
        """The weights as they were, for those who hash them."""
        mine = _floating(self.network)
        _assign(self.network, self._originals)
        try:
            yield
        finally:
            _assign(self.network, mine)

    def undo(self) -> None:
        """The network as it was."""
        del self.network.forward
        unfuse(self._fused)
        _assign(self.network, self._originals)


def cast(value: Any, dtype: torch.dtype, *, least: int = 0) -> Any:
    """The same with every floating-point tensor in it in another dtype.

    Tensors of fewer dimensions than `least` are left: the time of a diffusion is one, and in bf16 981 would be 980.
    """
    if isinstance(value, Tensor):
        return value.to(dtype) if value.is_floating_point() and value.dim() >= least else value
    if isinstance(value, Mapping):
        return type(value)(**{name: cast(item, dtype, least=least) for name, item in value.items()})
    if isinstance(value, list | tuple):
        return type(value)(cast(item, dtype, least=least) for item in value)
    return value


def _floating(network: nn.Module) -> dict[str, Tensor]:
    """A network's weights and buffers as they are now, without those that count."""
    named = (*network.named_parameters(), *network.named_buffers())
    return {name: tensor.data for name, tensor in named if tensor.is_floating_point()}


def _assign(network: nn.Module, values: Mapping[str, Tensor]) -> None:
    for name, tensor in (*network.named_parameters(), *network.named_buffers()):
        if name in values:
            tensor.data = values[name]


def _dtype_of(values: Sequence[Any]) -> torch.dtype:
    """The dtype in which answers go back: that of the first batch given."""
    floating = (value for value in values if isinstance(value, Tensor) and value.is_floating_point() and value.dim() >= 2)
    return next((value.dtype for value in floating), torch.float32)


class PlacedPipeline:
    """A pipeline on a device.

    Without `dtype` networks compute in float32 on a CPU, and in bfloat16 on a GPU that has it.
    """

    def __init__(self, pipeline: Any, dtype: str | None = None, *, compiled: bool = False) -> None:
        self.pipeline = pipeline
        self.takes = dict(inspect.signature(pipeline.__call__).parameters)  # the arguments of a call, by name
        self.dtype, self.compiled = dtype, compiled
        self._networks: list[AcceleratedNetwork] = []
        pipeline.set_progress_bar_config(disable=True)

    def __call__(self, **settings: Any) -> Any:
        """Call the pipeline; float32 is float32 only where it was asked for."""
        with dtypes.computing("float32" if self.dtype == "float32" else "bf16", self.device, low=False):
            return self.pipeline(output_type="pt", **settings)

    @property
    def device(self) -> torch.device:
        """The device of the networks."""
        return torch.device(self.pipeline.device)

    def place(self, device: str | torch.device) -> None:
        """Move the networks to a device."""
        target = torch.device(device)
        self.undo()
        dtype = dtypes.dtype_for(self.dtype, target)
        if target.type == "cuda" and dtype != torch.float32:
            self.accelerate(dtype, target)
        self.pipeline.to(target)

    def accelerate(self, dtype: torch.dtype, device: torch.device) -> None:
        """Make denoiser and decoder fast; a decoder is rebuilt from fused layers where these are all known."""
        vae = getattr(self.pipeline, "vae", None)
        fast = None
        if isinstance(vae, nn.Module):
            vae.to(device)
            fast = coders.build_decoder(vae, dtype) if dtype == torch.bfloat16 else None
        parts = [(self.pipeline, name) for name in DENOISERS]
        if fast is not None:
            vae.decode = FusedDecode(fast)  # type: ignore[union-attr]
        else:
            parts += [(vae, "post_quant_conv"), (vae, "decoder")]
        for owner, name in parts:
            part, compiled = getattr(owner, name, None), self.compiled and name in DENOISERS
            if isinstance(part, nn.Module):
                self._networks.append(AcceleratedNetwork(part, dtype, device=device, name=f"the {name}", compiled=compiled))

    def undo(self) -> None:
        """Leave the pipeline as it was."""
        for network in self._networks:
            network.undo()
        self._networks.clear()
        if (vae := getattr(self.pipeline, "vae", None)) is not None:
            vae.__dict__.pop("decode", None)

    @contextlib.contextmanager
    def originals(self) -> Iterator[None]:
        """The weights as they were, for those who hash them."""
        with contextlib.ExitStack() as stack:
            for network in self._networks:
                stack.enter_context(network.originals())
            yield

    def provenance(self) -> dict[str, str]:
        import diffusers

        networks = {name: part for name, part in self.pipeline.components.items() if isinstance(part, nn.Module)}
        with self.originals():
            hashes = {f"weights {name}": weights.fingerprint(part) for name, part in sorted(networks.items())}
        return {
            "library": f"diffusers {diffusers.__version__}",
            "pipeline": type(self.pipeline).__name__,
            "scheduler": type(self.pipeline.scheduler).__name__,
            "precision": self.dtype or dtypes.BY_DEVICE,
            **hashes,
        }


class FusedDecode:
    """Stands in for an autoencoder's `decode`, and answers as that does."""

    def __init__(self, fast: coders.FastDecoder) -> None:
        self.fast = fast

    def __call__(self, z: Tensor, return_dict: bool = True, generator: Any = None) -> Any:
        from diffusers.models.autoencoders.vae import DecoderOutput

        images = self.fast(z)
        return DecoderOutput(sample=images) if return_dict else (images,)
