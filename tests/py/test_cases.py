"""Pieces of real programs, each run on the CPU and on tpu: what people do with a device, beyond single operators."""

import gc
import os
import threading
import weakref

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from helpers import assert_same, host

CASES = {}


def case(loose=10.0):
    def register(function):
        CASES[function.__name__] = (function, loose)
        return function

    return register


def rand(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def ints(high, *shape, seed=0):
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


def module(make, device, seed=0):
    torch.manual_seed(seed)
    return make().to(device)


def grads(function, *inputs):
    """Outputs of |function| and gradients of a fixed weighting of them."""
    leaves = [i.detach().requires_grad_() for i in inputs]
    out = function(*leaves)
    weights = torch.linspace(-1, 1, max(out.numel(), 1))[: out.numel()].reshape(out.shape).to(out.device, out.dtype)
    (out * weights).sum().backward()
    return [out, *(leaf.grad for leaf in leaves)]


# --- networks --------------------------------------------------------------------------------------------------------


@case(loose=30)
def convolutions_forward_and_backward(d):
    out = []
    for options in ({}, dict(groups=2), dict(dilation=2, padding=2), dict(stride=2, padding=1), dict(padding="same"),
                    dict(padding=1, padding_mode="reflect")):  # fmt: skip
        m = module(lambda o=options: nn.Conv2d(4, 6, 3, **o), d)
        out += grads(m, rand(2, 4, 7, 6).to(d)) + [m.weight.grad, m.bias.grad]
    for options in (dict(stride=2, output_padding=1), dict(groups=2, dilation=2), dict(stride=(2, 1), padding=1)):
        m = module(lambda o=options: nn.ConvTranspose2d(4, 6, 3, **o), d)
        out += grads(m, rand(2, 4, 5, 4).to(d)) + [m.weight.grad]
    out += grads(module(lambda: nn.Conv1d(4, 4, 3, groups=4), d), rand(2, 4, 9).to(d))
    out += grads(module(lambda: nn.Conv3d(2, 3, 2, stride=2), d), rand(1, 2, 4, 4, 4).to(d))
    return out


@case(loose=30)
def channels_last_network(d):
    m = module(
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 2, 1)), d
    )
    m = m.to(memory_format=torch.channels_last)
    x = rand(2, 3, 8, 8).to(memory_format=torch.channels_last).to(d).requires_grad_()
    y = m(x)
    (y * y).sum().backward()
    return [y, y.is_contiguous(memory_format=torch.channels_last), x.grad, m[0].weight.grad, m[1].weight.grad]


@case()
def normalisation_layers(d):
    out = []
    x = rand(2, 4, 3, 3).to(d)
    for make in (lambda: nn.GroupNorm(2, 4), lambda: nn.InstanceNorm2d(4, affine=True), lambda: nn.LayerNorm((4, 3, 3)),
                 lambda: nn.LocalResponseNorm(2), lambda: nn.RMSNorm(3, eps=1e-6)):  # fmt: skip
        out += grads(module(make, d), x)
    for options in ({}, dict(momentum=None), dict(affine=False), dict(track_running_stats=False)):
        bn = module(lambda o=options: nn.BatchNorm1d(4, **o), d)
        for i in range(3):
            y = bn(rand(6, 8, seed=i).to(d)[:, ::2])
        out += [y, bn.eval()(rand(2, 4).to(d)), list(bn.state_dict().values())]
    return out


@case()
def losses_use_the_incoming_gradient(d):
    x = rand(2, 3, seed=4).to(d)
    t = torch.tensor([0, 2], device=d)
    pos = torch.tensor([1.0, 2.0, 3.0], device=d)
    losses = [
        lambda x: F.nll_loss(x, t), lambda x: F.cross_entropy(x, t, label_smoothing=0.1), lambda x: F.smooth_l1_loss(x, x.detach() * 0),
        lambda x: F.huber_loss(x, x.detach() * 0, delta=0.5), lambda x: F.kl_div(x, x.detach().softmax(1), reduction="batchmean"),
        lambda x: F.binary_cross_entropy_with_logits(x, (x.detach() > 0).float(), pos_weight=pos),
        lambda x: F.binary_cross_entropy(x.sigmoid(), (x.detach() > 0).float()), lambda x: F.soft_margin_loss(x, x.detach().sign()),
        lambda x: F.cross_entropy(x, t, ignore_index=2, reduction="none"), lambda x: F.l1_loss(x, x.detach() * 2),
    ]  # fmt: skip
    return [grads(lambda x, f=f: f(x) * 3.5, x) for f in losses]


@case()
def embeddings(d):
    e = module(lambda: nn.Embedding(5, 3, padding_idx=0), d)
    (e(torch.tensor([[0, 1, 1, 2]], device=d)) * torch.arange(3.0, device=d)).sum().backward()
    g = module(lambda: nn.Embedding(6, 2, scale_grad_by_freq=True), d)
    g(torch.tensor([1, 1, 3], device=d)).sum().backward()
    return [
        e.weight.grad,
        g.weight.grad,
        F.embedding(torch.zeros(0, dtype=torch.int64, device=d), torch.ones(3, 2, device=d)),
    ]


@case()
def embedding_bags(d):
    out = []
    for mode in ("sum", "mean", "max"):
        e = module(lambda m=mode: nn.EmbeddingBag(10, 3, mode=m), d)
        y = e(torch.tensor([1, 2, 4, 5, 4, 3], device=d), torch.tensor([0, 4, 4], device=d))
        (y * y).sum().backward()
        out += [y, e.weight.grad]
    return out


@case(loose=30)
def recurrent_networks(d):
    out = []
    for make in (
        lambda: nn.LSTM(3, 4, 2, batch_first=True),
        lambda: nn.GRU(3, 4, bidirectional=True),
        lambda: nn.RNN(3, 4),
    ):
        m = module(make, d)
        out += grads(lambda x, m=m: m(x)[0], rand(2, 5, 3).to(d)) + [m.weight_ih_l0.grad]
    return out


@case(loose=30)
def pooling(d):
    x = rand(1, 2, 5, 7).to(d)
    out = [F.max_pool2d(x, 2, return_indices=True), F.adaptive_max_pool2d(x, (3, 3), return_indices=True)]
    for f in (lambda t: F.max_pool2d(t, 3, 2, 1), lambda t: F.avg_pool2d(t, 2, ceil_mode=True), lambda t: F.adaptive_avg_pool2d(t, (3, 4)),
              lambda t: F.lp_pool2d(t.abs() + 0.1, 2, 2), lambda t: F.adaptive_max_pool2d(t, (3, 4))):  # fmt: skip
        out += grads(f, x)
    return out


@case(loose=30)
def spatial_operators(d):
    grid = (torch.rand(1, 3, 3, 2, generator=torch.Generator().manual_seed(0)) * 2 - 1).to(d)
    out = grads(lambda x, g: F.grid_sample(x, g, align_corners=False), rand(1, 2, 4, 4).to(d), grid)
    for mode in ("reflect", "replicate", "circular", "constant"):
        out += grads(lambda x, m=mode: F.pad(x, (1, 2), mode=m), rand(1, 2, 5).to(d))
    out += grads(lambda x: F.unfold(x, 2, padding=1, stride=2), rand(1, 2, 4, 4).to(d))
    out += grads(lambda x: F.fold(x, (4, 4), 2, stride=2), rand(1, 8, 4).to(d))
    for mode in ("nearest", "bilinear", "bicubic"):
        out += grads(lambda x, m=mode: F.interpolate(x, scale_factor=1.7, mode=m), rand(1, 2, 4, 5).to(d))
    return out + [F.pixel_shuffle(rand(1, 4, 2, 2).to(d), 2), F.pixel_unshuffle(rand(1, 1, 4, 4).to(d), 2)]


# --- attention -------------------------------------------------------------------------------------------------------


@case(loose=30)
def attention_on_permuted_operands(d):
    q, k, v = (rand(5, 3, 3, 16, seed=i).to(d).permute(0, 2, 1, 3) for i in range(3))
    out = [F.scaled_dot_product_attention(q, k, v), F.scaled_dot_product_attention(q, k, v, is_causal=True)]
    return out + grads(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3), q, k, v)


@case(loose=30)
def attention_masks(d):
    q = rand(2, 4, 8, 16).to(d)
    m = torch.zeros(2, 1, 8, 8)
    m[0, 0, 4:, :4] = -float("inf")
    b = torch.ones(2, 1, 1, 8, dtype=torch.bool)
    b[1, ..., 5:] = False
    hidden = torch.ones(4, 4, dtype=torch.bool, device=d)
    hidden[1] = False
    small = rand(1, 2, 4, 8).to(d)
    return [*(F.scaled_dot_product_attention(q, q, q, attn_mask=k.to(d)) for k in (m, b, m[:1, 0])),
            *grads(lambda q: F.scaled_dot_product_attention(q, q, q, attn_mask=hidden), small)]  # fmt: skip


@case(loose=60)
def transformer_encoder_layer(d):
    m = module(lambda: nn.MultiheadAttention(8, 2, batch_first=True), d)
    x = rand(2, 5, 8).to(d).requires_grad_()
    padding = torch.zeros(2, 5, dtype=torch.bool, device=d)
    padding[1, 3:] = True
    y, w = m(x, x, x, key_padding_mask=padding)
    (y * y).sum().backward()
    layer = module(lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True), d)
    return [y, w, x.grad, m.in_proj_weight.grad, layer(x.detach(), src_key_padding_mask=padding)[0]]


# --- autograd --------------------------------------------------------------------------------------------------------


@case()
def custom_functions_and_double_backward(d):
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, k):
            ctx.save_for_backward(x)
            ctx.k = k
            return x * x * k

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 2 * x * ctx.k, None

    x = rand(3).to(d).requires_grad_()
    y = Square.apply(x, 2.0)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (h,) = torch.autograd.grad((g * g).sum(), x)
    return [y, g, h]


@case(loose=30)
def functional_transforms(d):
    from torch.func import functional_call, grad, hessian, jacrev, jvp, vmap

    x = rand(4, 3).to(d)
    f = lambda t: (t.sin() * t).sum()
    m = module(lambda: nn.Linear(3, 2), d)
    p = dict(m.named_parameters())
    per_sample = vmap(grad(lambda p, a: functional_call(m, p, (a[None],)).pow(2).sum()), in_dims=(None, 0))(p, x)
    return [
        vmap(f)(x),
        vmap(grad(f))(x),
        jvp(f, (x,), (torch.ones_like(x),)),
        hessian(f)(x[0]),
        jacrev(torch.exp)(x[0]),
        per_sample,
    ]


@case()
def hooks_and_retained_gradients(d):
    x = rand(3).to(d).requires_grad_()
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda g: g * 10)
    m = module(lambda: nn.Linear(3, 2), d)
    seen = []
    m.register_full_backward_hook(lambda m, gi, go: seen.append(go[0].clone()))
    (m(y) ** 2).sum().backward()
    return [x.grad, y.grad, seen, m.weight.grad]


# --- data-dependent sizes --------------------------------------------------------------------------------------------


@case()
def sizes_decided_by_data(d):
    x = torch.tensor([0, 3, 1, 3], device=d)
    s = rand(5).to(d)
    return [F.one_hot(x), F.one_hot(x, 6), torch.bincount(x), torch.bincount(x, minlength=7), torch.repeat_interleave(x, x),
            torch.nonzero(s > 0), torch.where(s > 0)[0], s[s > 0], torch.unique(x, return_counts=True), s.masked_select(s < 0)]  # fmt: skip


@case()
def advanced_index_assignment(d):
    x = torch.zeros(4, 5, 3, device=d)
    x[[0, -1], :, 1] = torch.arange(5.0, device=d)
    x[:, torch.tensor([1, 3], device=d)] += 1
    x[x > 3] = -1
    x[torch.tensor([True, False, True, False], device=d), 2] = 9
    x[..., 2][1] = 4
    y = torch.zeros(4, device=d)
    y.index_put_((torch.tensor([1, 1, 3], device=d),), torch.tensor([1.0, 2.0, 4.0], device=d), accumulate=True)
    z = torch.arange(12, device=d).reshape(3, 4)
    z[:, None, 1:3][2] = 0
    z[None, 0, ::2] = 77
    return [x, y, z, x[[0, 2], [1, 3]], x[:, [0, 1], None]]


@case()
def control_flow_on_values(d):
    x = torch.arange(5.0, device=d)
    steps = 0
    while x.sum() < 100:
        x, steps = x * 2, steps + 1
    return [steps, int(x[1]), float(x.mean()), bool((x > 3).any()), x.tolist(), len(x), [v.item() for v in x]]


@case()
def greedy_box_suppression(d):
    b = torch.rand(12, 4, generator=torch.Generator().manual_seed(0)).to(d)
    b = torch.cat([b[:, :2], b[:, :2] + b[:, 2:] + 0.2], 1)
    order, keep = torch.rand(12, generator=torch.Generator().manual_seed(1)).to(d).argsort(descending=True), []
    area = lambda z: (z[..., 2] - z[..., 0]) * (z[..., 3] - z[..., 1])
    while order.numel() > 0:
        i, rest = order[0], order[1:]
        keep.append(i.item())
        low, high = torch.maximum(b[i, :2], b[rest, :2]), torch.minimum(b[i, 2:], b[rest, 2:])
        both = (high - low).clamp(min=0).prod(1)
        order = rest[both / (area(b[i]) + area(b[rest]) - both) <= 0.4]
    return keep


@case()
def sampling_filter(d):
    scores, out = rand(3, 20).to(d) * 3, []
    for k, p in ((0, 0.9), (5, 1.0), (5, 0.7)):
        x = scores.clone()
        if k:
            x[x < x.topk(k).values[..., -1, None]] = -float("inf")
        values, where = x.sort(descending=True)
        remove = values.softmax(-1).cumsum(-1) > p
        remove[..., 1:] = remove[..., :-1].clone()
        remove[..., 0] = False
        x = x.masked_fill(remove.scatter(1, where, remove), -float("inf"))
        out += [x, x.softmax(-1), x.argmax(-1)]
    return out


@case()
def growing_sequence(d):
    e, h = module(lambda: nn.Embedding(13, 8), d), module(lambda: nn.Linear(8, 13), d, 3)
    ids = torch.tensor([[1, 2], [3, 4]], device=d)
    while ids.shape[1] < 10:
        nxt = h(e(ids).cumsum(1)[:, -1]).argmax(-1)
        ids = torch.cat([ids, nxt[:, None]], 1)
    return ids


@case(loose=30)
def mixture_of_experts(d):
    x = rand(10, 6).to(d).requires_grad_()
    gate = module(lambda: nn.Linear(6, 5), d)
    experts = module(lambda: nn.ModuleList([nn.Linear(6, 6) for _ in range(5)]), d, 2)
    w, i = gate(x).softmax(-1).topk(2, -1)
    y = torch.zeros_like(x)
    for k in range(5):
        t, s = torch.where(i == k)
        y = y.index_add(0, t, experts[k](x[t]) * w[t, s, None])
    (y * y).sum().backward()
    return [y, torch.bincount(i.flatten(), minlength=5), x.grad, gate.weight.grad]


@case(loose=30)
def diffusion_sampler(d):
    m = module(lambda: nn.Conv2d(2, 2, 3, padding=1), d)
    sigmas, x, old = torch.linspace(3, 0.05, 12).to(d), rand(1, 2, 6, 6, seed=3).to(d) * 3, None
    for i in range(11):
        step = (x - torch.tanh(m(x * (1.0 / (1 + float(sigmas[i]) ** 2) ** 0.5)))) / sigmas[i]
        x = x + (step if old is None else 1.5 * step - 0.5 * old) * (sigmas[i + 1] - sigmas[i])
        old = step
    return x


# --- numbers ---------------------------------------------------------------------------------------------------------


@case()
def scatter_and_gather(d):
    src, index, z = rand(4, 5).to(d), ints(3, 4, 5).to(d), torch.ones(4, 5, device=d)
    out = [
        z.scatter_reduce(1, index, src, r, include_self=s)
        for r in ("sum", "prod", "mean", "amax", "amin")
        for s in (True, False)
    ]
    return out + [
        src.gather(1, index),
        z.scatter_add(0, index, src),
        torch.take_along_dim(src, index, 1),
        z.scatter(1, index[:, :1], 5.0),
    ]


@case()
def reductions(d):
    x = torch.arange(240.0, device=d).reshape(2, 4, 1, 30, 1) / 100
    return [x.sum(-2), x.sum((0, -1)), x.mean((1, 2, 3)), x.sum(dim=()), x.amax((0, 3), keepdim=True), x.var(3, correction=0),
            x.std(), x.prod(1), x.logsumexp(3), x.norm(dim=3), x.median(3), x.quantile(0.3), x.cumprod(3), x.argmin(3), x.aminmax(dim=1)]  # fmt: skip


@case()
def sorting(d):
    x = rand(4, 9).to(d)
    v, i = x.sort(1, descending=True)
    return [v, i, x.topk(4), x.kthvalue(3, 1), x.argsort(0), x.msort(), torch.searchsorted(x[0].sort().values, x[1]),
            x.unique(), torch.bucketize(x, x[0].sort().values)]  # fmt: skip


@case(loose=100)
def linear_algebra(d):
    a = rand(4, 4)
    s, b = (a @ a.t() + 4 * torch.eye(4)).to(d), rand(4, 2, seed=1).to(d)
    q, r = torch.linalg.qr(s)
    u, values, vh = torch.linalg.svd(s)
    return [torch.linalg.cholesky(s), torch.linalg.solve(s, b), torch.linalg.inv(s), torch.linalg.det(s).log(), q @ r, values,
            u @ torch.diag(values) @ vh, torch.linalg.eigvalsh(s), torch.linalg.matrix_norm(s), torch.linalg.slogdet(s),
            torch.kron(s[:2, :2], b), torch.trace(s), torch.einsum("ij,jk->ik", s, b), torch.linalg.matrix_power(s / 10, 3)]  # fmt: skip


@case(loose=30)
def fourier_transforms(d):
    x = rand(4, 8).to(d)
    z = torch.fft.fft(x)
    return [z, torch.fft.ifft(z).real, torch.fft.rfft(x), torch.fft.irfft(torch.fft.rfft(x), n=8), torch.fft.fft2(x), torch.fft.fftshift(x),
            torch.fft.fft(x, norm="ortho", dim=0), torch.stft(x, 4, 2, window=torch.ones(4, device=d), return_complex=True)]  # fmt: skip


@case()
def products_with_empty_dimensions(d):
    z, o = (lambda *s: torch.zeros(*s, device=d)), (lambda *s: torch.ones(*s, device=d))
    return [z(2, 0) @ z(0, 3), z(0, 9) @ o(9), z(0).dot(z(0)), torch.addmm(o(2, 3), z(2, 0), z(0, 3), beta=2), torch.bmm(z(0, 2, 3), z(0, 3, 4)),
            *grads(lambda x: F.linear(x, z(5, 0)), z(3, 0)), z(0, 3).sum(0), z(0, 3).sum(), z(2, 0).mean(1)]  # fmt: skip


@case()
def multi_tensor_operators(d):
    many = [rand(3, 4).to(d), rand(4, 3, seed=1).to(d).t(), torch.tensor(2.0, device=d), torch.zeros(0, device=d)]
    a = torch._foreach_add(many, 1.0)
    torch._foreach_mul_(a, [2.0, 3.0, 4.0, 5.0])
    torch._foreach_addcdiv_(a, many, [t.abs() + 1 for t in many], 0.5)
    return [a, torch._foreach_norm(many[:3]), torch._foreach_lerp(many, a, 0.25), torch._foreach_maximum(many, 0.0)]


@case()
def rotary_embedding_on_strided_slices(d):
    x = rand(2, 3, 4, 8).to(d)
    a, b = x[..., ::2], x[..., 1::2]
    return [
        torch.stack((-b, a), -1).flatten(-2),
        torch.cat([b, a], -1),
        torch.roll(x, 3, 1),
        torch.rot90(x[0, 0]),
        torch.tensor_split(x, 3, 3),
    ]


@case()
def many_sequence_lengths(d):
    m = module(lambda: nn.Sequential(nn.Embedding(11, 8), nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8)), d)
    return [m(ints(11, 2, n, seed=n).to(d)).sum() for n in range(1, 12)]


@pytest.mark.parametrize("name", CASES)
def test_case(name):
    function, loose = CASES[name]
    assert_same(host(function("tpu")), host(function("cpu")), loose, strides=False)


# --- lifetime --------------------------------------------------------------------------------------------------------


def resident_mb():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def test_buffers_are_released():
    def body():
        for _ in range(20):
            a = torch.ones(256, 1024, device="tpu")
            b = a + 1
            b.cpu()
        del a, b
        gc.collect()
        torch.tpu.synchronize()

    body()
    used, resident = torch.tpu.memory_allocated(), resident_mb()
    for _ in range(5):
        body()
    assert torch.tpu.memory_allocated() - used <= 2**20 and resident_mb() - resident < 64


def test_graph_is_freed_after_backward():
    m = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)).to("tpu")
    y = m[0](torch.ones(2, 4, device="tpu"))
    alive = weakref.ref(y)
    m[2](m[1](y)).sum().backward()
    del y
    gc.collect()
    assert alive() is None


def test_changing_scalars_do_not_grow_memory():
    x = torch.ones(4, device="tpu")
    for i in range(2000):
        x.mul_(1.0).add_(i * 1e-9)
    torch.tpu.synchronize()
    before = resident_mb()
    for i in range(20000):
        x = x * (1 + i * 1e-12) + i
    torch.tpu.synchronize()
    assert resident_mb() - before < 10


def test_threads_compute_independently():
    results = {}

    def work(k):
        m = module(lambda: nn.Linear(6, 6), "cpu", k)
        x, host_m = rand(3, 6, seed=k), nn.Linear(6, 6)
        host_m.load_state_dict(m.state_dict())
        m = m.to("tpu")
        for _ in range(10):
            y, z = m(x.to("tpu")), host_m(x)
        results[k] = torch.allclose(y.detach().cpu(), z.detach(), atol=1e-5)

    for k in range(4):
        torch.manual_seed(k)
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert results == dict.fromkeys(range(4), True)
