"""Random numbers: seeds, states, generators, reproducibility in every mode, distributions."""

import pytest
import torch
import torch.nn.functional as F

import torchtpu

pytestmark = pytest.mark.usefixtures("no_fallback")


def draw():
    return [
        torch.rand(5, device="tpu"),
        torch.randn(3, 3, device="tpu"),
        torch.randint(0, 100, (4,), device="tpu"),
        F.dropout(torch.ones(16, device="tpu"), 0.5),
        torch.randperm(9, device="tpu"),
        torch.empty(4, device="tpu").exponential_(),
        torch.bernoulli(torch.full((8,), 0.3, device="tpu")),
        torch.multinomial(torch.ones(6, device="tpu"), 3),
    ]


def same(a, b):
    return all(torch.equal(x.cpu(), y.cpu()) for x, y in zip(a, b))


def test_seed_repeats_and_draws_differ():
    torch.manual_seed(3)
    first, second = draw(), draw()
    torch.manual_seed(3)
    assert same(first, draw()) and not same(first, second)
    torch.manual_seed(4)
    assert not same(first, draw())


def test_numbers_do_not_depend_on_the_mode():
    results = []
    for mode in ("debug", "strict", "fused"):
        with torchtpu.eager_mode(mode):
            torch.tpu.manual_seed(11)
            results.append([v.cpu() for v in draw()])
    assert same(results[0], results[1]) and same(results[0], results[2])


def test_seed_before_the_start(run_python):
    code = "import torch, torchtpu; torch.manual_seed(5); assert not torch.tpu.is_initialized(); print(torch.rand(2, device='tpu').tolist())"
    out = run_python(code).stdout
    torch.manual_seed(5)
    assert str(torch.rand(2, device="tpu").tolist()) == out.strip()


def test_states():
    torch.tpu.manual_seed(7)
    torch.rand(3, device="tpu")
    state = torch.tpu.get_rng_state()
    assert state.dtype == torch.uint8 and state.is_cpu
    a = torch.rand(5, device="tpu")
    torch.tpu.set_rng_state(state)
    assert torch.equal(a, torch.rand(5, device="tpu"))
    torch.tpu.set_rng_state(state)
    with torch.random.fork_rng(device_type="tpu"):
        torch.rand(9, device="tpu")
    assert torch.equal(a, torch.rand(5, device="tpu"))
    everywhere = torch.tpu.get_rng_state_all()
    b = torch.rand(2, device="tpu")
    torch.tpu.set_rng_state_all(everywhere)
    assert torch.equal(b, torch.rand(2, device="tpu"))
    assert torch.tpu.initial_seed() == 7
    torch.tpu.seed()
    assert torch.tpu.initial_seed() != 7
    with pytest.raises((RuntimeError, TypeError)):
        torch.tpu.set_rng_state(torch.zeros(3, dtype=torch.uint8))


def test_generators():
    g = torch.Generator(device="tpu").manual_seed(42)
    a, b = torch.rand(3, generator=g, device="tpu"), torch.rand(3, generator=g, device="tpu")
    state = g.get_state()
    c = torch.rand(3, generator=g, device="tpu")
    other = torch.Generator(device="tpu")
    other.set_state(state)
    assert torch.equal(c, torch.rand(3, generator=other, device="tpu"))
    g.manual_seed(42)
    assert torch.equal(a, torch.rand(3, generator=g, device="tpu")) and not torch.equal(a, b)
    assert g.initial_seed() == 42 and g.device.type == "tpu"
    assert torch.equal(torch.rand(2, generator=g.clone_state(), device="tpu"), torch.rand(2, generator=g, device="tpu"))
    assert torch.tpu.default_generators[0].device == torch.device("tpu:0")
    with pytest.raises(RuntimeError, match="device"):
        torch.rand(3, generator=torch.Generator(), device="tpu")


def test_a_generator_of_its_own_leaves_the_default_alone():
    torch.manual_seed(1)
    expected = torch.rand(4, device="tpu")
    torch.manual_seed(1)
    torch.rand(4, device="tpu", generator=torch.Generator(device="tpu").manual_seed(9))
    assert torch.equal(expected, torch.rand(4, device="tpu"))


def test_dropout_uses_its_mask_again_in_backward():
    torch.manual_seed(0)
    x = torch.ones(1000, device="tpu", requires_grad=True)
    y = F.dropout(x, 0.25)
    y.sum().backward()
    assert torch.equal(y.detach(), x.grad)
    kept = (y != 0).float().mean().item()
    assert abs(kept - 0.75) < 0.05 and abs(y.max().item() - 4 / 3) < 1e-5
    assert torch.equal(F.dropout(x, 0.5, training=False), x) and F.dropout(x, 1.0).sum().item() == 0
    assert torch.equal(F.dropout(x, 0.0), x)


def test_checkpoint_draws_the_same_mask():
    from torch.utils.checkpoint import checkpoint

    weight = torch.randn(16, 16, device="tpu")
    gradients = []
    for wrapped in (False, True):
        x = torch.ones(8, 16, device="tpu", requires_grad=True)
        f = lambda t: F.dropout(t @ weight, 0.5)
        torch.manual_seed(7)
        y = checkpoint(f, x, use_reentrant=False) if wrapped else f(x)
        torch.rand(3, device="tpu")
        y.sum().backward()
        gradients.append(x.grad.cpu())
    torch.testing.assert_close(gradients[0], gradients[1])


def test_distributions():
    torch.manual_seed(0)
    n = 20000

    def near(value, expected, tolerance):
        assert abs(value.item() - expected) < tolerance

    u, g = torch.rand(n, device="tpu"), torch.randn(n, device="tpu")
    assert (u >= 0).all().item() and (u < 1).all().item() and torch.isfinite(g).all().item()
    near(u.mean(), 0.5, 0.02)
    near(u.var(), 1 / 12, 0.01)
    near(g.mean(), 0, 0.05)
    near(g.std(), 1, 0.05)
    k = torch.randint(-3, 4, (n,), device="tpu")
    assert k.min().item() == -3 and k.max().item() == 3
    assert torch.equal(torch.randperm(500, device="tpu").sort().values.cpu(), torch.arange(500))
    near(torch.empty(n, device="tpu").exponential_(2.0).mean(), 0.5, 0.03)
    near(torch.empty(n, device="tpu").uniform_(2, 4).mean(), 3, 0.05)
    near(torch.empty(n, device="tpu").normal_(1, 2).std(), 2, 0.1)
    near(torch.normal(torch.full((n,), 5.0, device="tpu"), 0.1).mean(), 5, 0.02)
    picks = torch.multinomial(torch.tensor([0.0, 3.0, 1.0], device="tpu"), n, replacement=True)
    assert not (picks == 0).any().item()
    near((picks == 1).float().mean(), 0.75, 0.03)
    assert torch.multinomial(torch.ones(6, device="tpu"), 6).sort().values.tolist() == list(range(6))
    assert torch.bernoulli(torch.tensor([0.0, 1.0], device="tpu")).tolist() == [0.0, 1.0]
    half = torch.rand(n, dtype=torch.bfloat16, device="tpu")
    assert (half < 1).all().item()


def test_random_shapes_and_types():
    assert torch.rand(0, device="tpu").shape == (0,) and torch.randn((), device="tpu").shape == ()
    assert torch.randn(2, dtype=torch.float64, device="tpu").dtype == torch.float64
    assert torch.rand_like(torch.ones(3, device="tpu")).is_tpu
    assert torch.randn(2, dtype=torch.complex64, device="tpu").dtype == torch.complex64
    x = torch.zeros(4, 4, device="tpu")
    x.t()[1:].uniform_(1, 2)
    assert (x[:, 0] == 0).all().item() and (x[:, 1:] >= 1).all().item()
