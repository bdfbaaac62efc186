"""Lab 14: the starter fails with a reason, the solution passes, and each mistake is named."""

import numpy as np
import pytest
from fused_attention import judged
from lab_answers import cells_of, found, run_cell

from lib_dlhpc.labs.findings import as_text, passed, seed_of
from lib_dlhpc.labs.fuse_attention import attention_laws, backward_laws, tile_laws, time_laws
from lib_dlhpc.labs.fuse_attention.backward_laws import backward_findings
from lib_dlhpc.labs.fuse_attention.chip import LIMIT, Chip, Matrix
from lib_dlhpc.labs.mistakes import LabError

LAB = "14_fuse_attention"
NAMES = ["your name", "another", "x"]
HELPERS = ("side_of", "blocks")
SEEDS = [seed_of(f"learner {k}") for k in range(200)]


def handed_in(own, solved, function="", old="", new=""):
    """All functions of the solution, text of one replaced, as from cells."""
    scope = {"math": solved.math, "np": np}
    return cells_of(solved, (*HELPERS, *own.NAMES), scope, function, [(old, new)])


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_passes(own, solved, name):
    findings = own.findings(vars(solved), name)
    assert passed(findings) and len(findings) == 14, as_text(findings)


@pytest.mark.parametrize(("name", "hidden"), [(NAMES[0], False), (NAMES[1], True)])
def test_each_mistake_is_named(own, solved, name, hidden):
    """On the shapes that a learner sees, and on hidden ones alone."""
    wrong = []
    for mistake, (function, old, new, law, words) in solved.MISTAKES.items():
        findings = judged(handed_in(own, solved, function, old, new), name, law, [hidden])
        finding = found(findings, law)
        if finding.right is not False or words not in finding.words:
            wrong.append((mistake, as_text(findings)))
    assert not wrong, "\n\n".join(map("\n".join, wrong))


def test_the_starter_fails_with_a_useful_message(own, started, solved):
    scope = started("matmul", "softmax", "write_scores", "attention", "attention_moved", "seconds")
    findings = own.findings(scope, "x")
    assert not any(each.right for each in findings), as_text(findings)
    for law, words in (
        ("Matmul: right", "only the last 1 column of A"),
        ("Softmax: right", "needs room for"),
        ("Attention: right", "exp(710) overflows"),
        ("Seconds: scores", "What does a kernel read and write?"),
        ("Seconds: attention", "too little"),
        ("Longest", "grow with their square"),
    ):
        assert words in found(findings, law).words, as_text(findings)
    scope["softmax"] = solved.softmax
    right, nothing = judged(scope, "x", attention_laws.RIGHT)[:2]
    assert right.right and "Scores are 3 x 3" in nothing.words, nothing


def test_a_chip_counts_what_moves_and_what_it_holds():
    chip, x, y = (
        Chip(20),
        Matrix("x", np.arange(12.0).reshape(4, 3), True),
        Matrix("y", np.zeros((4, 4))),
    )
    a = chip.load(x, 0, 2)
    assert (a.shape, chip.used, chip.loaded) == ((2, 3), 6, 6)
    view = a.T
    assert (view.shape, chip.used) == ((3, 2), 6)
    b = chip.dot(a, view)
    del a
    assert chip.used == 10, "a view holds its tile"
    del view
    assert chip.used == 4
    b += chip.full(1, 2, 1.0)
    b *= 2
    b -= b.max()
    assert (chip.used, chip.peak) == (4, 10)
    chip.store(b, y, 2, 1)
    numbers = x.numbers[:2] @ x.numbers[:2].T
    right = 2 * (numbers + 1)
    assert np.array_equal(y.numbers[2:, 1:3], right - right.max(axis=1, keepdims=True))
    assert (chip.loaded, chip.stored, chip.moved) == (6, 4, 10)
    assert chip.load(x, 3, 9, 2, 9).shape == (1, 1), "beyond the edges there is nothing"


def test_operators_of_tiles_are_those_of_numpy():
    chip, numbers = Chip(100), np.array([[1.0, 2.0], [3.0, 5.0]])
    a, y = chip.load(Matrix("x", numbers), 0, 2), Matrix("y", np.zeros((2, 2)))
    column, own = a.sum(), numbers.sum(axis=1, keepdims=True)
    for tile, right in (
        (a + column, numbers + own),
        (2 - a, 2 - numbers),
        (np.float64(2) * a, 2 * numbers),
        (1 / a, 1 / numbers),
        (a / column, numbers / own),
        ((a - column).exp(), np.exp(numbers - own)),
        ((a + 0).log(), np.log(numbers)),
        ((a + 0).maximum(3), np.maximum(numbers, 3)),
        ((a + 0).where(numbers > 2, -1), np.where(numbers > 2, numbers, -1)),
        (chip.dot(a, a, a + 0), numbers @ numbers + numbers),
    ):
        chip.store(tile, y, 0)
        assert np.allclose(y.numbers, right, rtol=1e-15)
    del tile, column
    assert chip.used == 4


@pytest.mark.parametrize(
    ("does", "words"),
    [
        (
            lambda chip, x, y: chip.load(x, 0, 4),
            "needs room for 12 numbers, and 9 of 9 are free. Nothing else",
        ),
        (lambda chip, x, y: chip.load(x, 4, 5), "contain no numbers"),
        (lambda chip, x, y: chip.load(x, -1, 2), "contain no numbers"),
        (lambda chip, x, y: chip.load(x, 0.5, 2), "expected a whole number"),
        (lambda chip, x, y: chip.load(np.eye(2), 0, 1), "takes a matrix in HBM, not a ndarray"),
        (lambda chip, x, y: chip.store(chip.full(2, 2), x, 0), "x is an input"),
        (lambda chip, x, y: chip.store(chip.full(2, 2), y, 3), "exceeds y"),
        (lambda chip, x, y: chip.store(1.0, y, 0), "store writes a tile"),
        (lambda chip, x, y: chip.full(0, 2), "at least one number"),
        (lambda chip, x, y: chip.full(2, 2) + np.eye(2), "arrays reach the chip only by `load`"),
        (lambda chip, x, y: chip.full(2, 2) + chip.full(1, 3), "cannot be combined"),
        (lambda chip, x, y: chip.dot(chip.full(2, 2), chip.full(1, 2)), "do not match"),
        (lambda chip, x, y: chip.dot(chip.full(1, 2), chip.full(2, 1), chip.full(1, 2)), "added"),
        (lambda chip, x, y: chip.full(2, 1).__iadd__(chip.full(1, 2)), "in place"),
        (lambda chip, x, y: chip.full(2, 2).where([[True]], 0), "truth values"),
        (lambda chip, x, y: chip.full(2, 2) + Chip(9).full(2, 2), "of another run"),
        (lambda chip, x, y: chip.scratch(1 << 13, 1 << 13), "no such room"),
        (lambda chip, x, y: [chip.full(1, 1) for _ in range(10)], "Now on the chip: 9 of 1 x 1."),
        (lambda chip, x, y: [chip.count() for _ in range(LIMIT + 1)], "never ends"),
    ],
)
def test_what_a_chip_refuses(does, words):
    x, y = Matrix("x", np.zeros((4, 3)), constant=True), Matrix("y", np.zeros((4, 3)))
    with pytest.raises(LabError, match="x is an input" if "input" in words else None) as error:
        does(Chip(9), x, y)
    assert words in str(error.value)
    assert not y.numbers.any()


def test_numpy_does_not_see_a_tile():
    tile = Chip(9).full(2, 2)
    for does in (np.exp, lambda each: each.sum(axis=1), float, len):
        with pytest.raises(TypeError):
            does(tile)


@pytest.mark.parametrize(
    "gives",
    [
        lambda *given: None,
        lambda *given: 1 / 0,
        lambda *given: "x",
        lambda *given: float("nan"),
        lambda *given: 10**400,
        lambda *given: (1, 2, 3),
        lambda *given: [float("inf"), None],
    ],
)
def test_what_is_no_answer_is_reported(own, gives):
    findings = own.findings(dict.fromkeys(own.NAMES, gives), "x")
    assert not any(each.right for each in findings)
    assert all(each.right is None or len(each.words) < 400 for each in findings), as_text(findings)


def test_a_count_kept_from_a_run_fails_where_there_was_none(own, solved):
    kept = {}

    def matmul(chip, a, b, c):
        solved.matmul(chip, a, b, c)
        kept[*a.shape, b.shape[1], chip.room] = chip.moved

    given = dict(vars(solved), matmul=matmul, matmul_moved=lambda *shape: kept.get(shape, 0))
    finding = found(own.findings(given, "x"), "Matmul: your count")
    assert finding.right is False and "0 are too few" in finding.words


def test_the_targets_are_within_reach_and_out_of_reach_of_equal_tiles(solved):
    for seed in SEEDS:
        for task in (each for each in tile_laws.matmuls_of(seed) if each.target):
            n, k, m, room = task[:4]
            assert solved.matmul_moved(n, k, m, room) <= 0.95 * tile_laws.TIMES * task.least
            side = tile_laws.isqrt(room // 3)
            equal = k * (n * -(-m // side) + m * -(-n // side)) + n * m
            assert equal > 1.05 * tile_laws.TIMES * task.least
        for task in (each for each in attention_laws.attentions_of(seed) if each.target):
            n, d, room = task[:3]
            most = attention_laws.TIMES * task.little
            assert solved.attention_moved(n, d, room, False) <= 0.9 * most
            size = n * d
            loads = [solved.attention_moved(n, d, room, way) - size for way in (True, False)]
            assert loads[0] <= 0.95 * attention_laws.HALF * loads[1]
            rows = max(r for r in range(1, n) if r * (r + 3 * d + 4) <= room)
            assert 2 * n * d * (1 + -(-n // rows)) > most, "as many keys as queries"


def test_no_program_moves_less_than_the_bound(solved):
    """The bound is Smith et al.'s, 2 n k m / sqrt(M) - 2 M, which a tile of C that fills the chip approaches."""
    for side in (10, 30, 100):
        task = tile_laws.Matmul(8 * side, 8 * side, 8 * side, side * side + 2 * side, 0)
        times = solved.matmul_moved(*task[:4]) / task.least
        assert 1 <= times <= 1 + 4 / side, (side, times)


def test_fused_attention_moves_less_the_more_room_there_is(solved):
    """Theorem 2 of Dao et al. 2022: n^2 d^2 / M, where blocks of scores are no part of what moves."""
    n, d = 100_000, 64
    moved = [solved.attention_moved(n, d, room, False) for room in (1 << 15, 1 << 17, 1 << 19)]
    for less, more in zip(moved[1:], moved, strict=False):
        assert more / less == pytest.approx(4, rel=0.05)
    half = solved.attention_moved(n, d, 1 << 15, True) / moved[0]
    assert half == pytest.approx(0.5, abs=0.01)


def test_the_times_are_those_of_the_librarys_flop():
    """Of its own attention layer: 4 n^2 d FLOP of a head, without a mask."""
    from lib_dlhpc.spec.networks import build

    task = time_laws.timed_of(SEEDS[0])[1]._replace(tokens=512, head=64, heads=8)
    size = {"layers": 1, "hidden": 512, "heads": 8, "vocabulary": 8, "sequence": 512}
    (flop,) = [each.forward_flop for each in build("gpt", size).layers if each.kind == "attention"]
    assert time_laws.one(task)[0][0] == flop


def test_scores_of_one_token_more_do_not_fit():
    for seed in SEEDS[:20]:
        for task in time_laws.timed_of(seed):
            n = int(time_laws.longest_of(task))
            need = [
                2 * task.heads * (2 * each * each + 4 * each * task.head) for each in (n, n + 1)
            ]
            assert need[0] <= task.gpu["memory"] < need[1]


def test_learners_have_different_shapes():
    for of in (
        tile_laws.matmuls_of,
        tile_laws.softmaxes_of,
        attention_laws.attentions_of,
        time_laws.timed_of,
    ):
        assert len({tuple(of(seed)) for seed in SEEDS[:30]}) == 30
        assert all(of(seed) != of(seed, True) for seed in SEEDS[:30])


def test_the_first_answer_is_no_common_number(own):
    ratios = [own.growth(f"learner {k}") for k in range(200)]
    assert min(ratios) > 2 and max(ratios) < 10 and len({round(each, 1) for each in ratios}) > 10


def test_the_playground_of_the_handout(own):
    chip, x, y = own.playground()
    for i in range(0, 12, 4):
        tile = chip.load(x, i, i + 4)
        chip.store(tile, y, i)
        del tile
    assert np.array_equal(x.numbers, y.numbers)
    assert repr(chip) == (
        "A chip with room for 40 numbers: 0 used now, at most 20 used; 60 loaded, 60 stored."
    )


@pytest.mark.parametrize("name", NAMES)
def test_backward_is_an_extra_that_its_solution_passes(own, solved, starter, name):
    tasks = attention_laws.attentions_of(seed_of(name))
    findings = backward_findings(solved.backward, tasks)
    assert passed(findings) and len(findings) == 2, as_text(findings)
    scope = run_cell(starter(LAB, "def backward("), {})
    assert "dv[0, 0] is 0" in backward_findings(scope["backward"], tasks)[0].words


def test_gradients_are_those_of_finite_differences():
    task = attention_laws.Attention(5, 3, 100, 7)
    given = backward_laws.arrays_of(task)
    found = backward_laws.gradients_of(*given.values())
    inputs = {name: given[name] for name in "qkv"}
    for name, array in inputs.items():
        for place in np.ndindex(*array.shape):
            both = []
            for step in (1e-6, -1e-6):
                moved = array.copy()
                moved[place] += step
                out = attention_laws.attention_of(**(inputs | {name: moved}), causal=False)
                both.append(float((out * given["dout"]).sum()))
            assert found[f"d{name}"][place] == pytest.approx((both[0] - both[1]) / 2e-6, abs=1e-7)
