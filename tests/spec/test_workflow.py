"""A workflow reads back from its TOML, shares out its ranks, and refuses what cannot be, by name."""

from pathlib import Path

import pytest
from small_workflow import TEXT, small

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.workflow import dumps, load, loads, most, share

LABS = Path(__file__).parents[2] / "labs" / "experiments"


@pytest.mark.parametrize("name", ["coupled.toml", "coupled_waits.toml"])
def test_what_is_written_reads_back_to_the_same(name):
    workflow = load(LABS / name)
    assert loads(dumps(workflow)) == workflow
    assert workflow.batches * workflow.batch == workflow.simulation.samples


def test_costs_and_placement_read_back_too():
    workflow = small("separate", 2, depth=3, empty="again")
    assert workflow.costs is not None
    assert loads(dumps(workflow)) == workflow


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("steps = 96", "steps = 97", "legal: a multiple, such as 96"),
        ("sampling = 2", "sampling = 99999", "simulation.sampling = 99999: no sample"),
        ("restart = 8", "restart = 7", "simulation.restart = 7: legal: a multiple"),
        ("grid = 12", "grid = 16", "must read and give fields of (1, 16, 16)"),
        ("grid = 12", "grid = 3", "simulation.grid = 3"),
        ('"separate"', '"apart"', "Legal: shared, separate"),
        ("depth = 2", "depth = 0", "coupling.depth = 0"),
        ("depth = 2", "deep = 2", "coupling.deep: unknown key"),
        ('point = "10 ns"', "", "costs.point: missing"),
        ("[training]", '[dataset]\nname = "digits"\n[training]', "workflow.dataset: unknown key"),
        ("rate = 0.05", "rate = ", "Not valid TOML"),
    ],
)
def test_invalid_fields_are_refused_by_name(before, after, says):
    assert before in TEXT
    with pytest.raises(SpecError) as error:
        loads(TEXT.replace(before, after))
    assert says in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SpecError, match=r"nowhere\.toml: cannot be read"):
        load(tmp_path / "nowhere.toml")


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_shared_ranks_do_both_and_separate_ones_do_one_thing_each(ranks):
    assert small("shared").sides(ranks) == (range(ranks), range(ranks))
    for simulating in range(1, ranks):
        assert small("separate", simulating).sides(ranks) == (
            range(simulating),
            range(simulating, ranks),
        )


def test_no_training_ranks_and_more_ranks_than_rows_are_refused():
    with pytest.raises(
        SpecError, match=r"coupling.ranks = 2: these leave none to train of 2 ranks"
    ):
        small("separate", 2).sides(2)
    with pytest.raises(SpecError, match=r"13 ranks simulate: simulation.grid = 12"):
        small("shared").sides(13)


@pytest.mark.parametrize(("many", "ranks"), [(12, 1), (12, 5), (3, 7)])
def test_shards_cover_everything_once_and_the_largest_is_known(many, ranks):
    shares = [share(many, rank, ranks) for rank in range(ranks)]
    assert [place for part in shares for place in range(many)[part]] == list(range(many))
    assert max(part.stop - part.start for part in shares) == most(many, ranks)
