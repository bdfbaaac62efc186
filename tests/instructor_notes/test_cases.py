"""Cases: numbers of catalog and library, two mistakes in each plan, choices that can be defended as stated."""

import tomllib

import pytest

from lib_dlhpc.prediction import predict
from lib_dlhpc.serving import predict_service, read_service
from lib_dlhpc.spec.experiment import loads
from lib_dlhpc.teaching.cases import WRONG, answered, asked, case

NAMES = (
    "03_allreduce",
    "04_model_parallel",
    "05_hybrid_parallel",
    "09_state_and_failures",
    "11_traces_and_waits",
    "12_train_a_language_model",
    "13_serving",
)
SEEDS = range(6)


@pytest.fixture(scope="module")
def cases(repository):
    folder = repository / "instructor_notes" / "case"
    assert {path.stem for path in folder.glob("*.py")} == set(NAMES)
    return {(name, seed): case(folder / f"{name}.py", seed) for name in NAMES for seed in SEEDS}


def values(option):
    return [step.value for step in option.steps]


def of(found):
    return {option.name: values(option) for option in found.choice.options}


def test_a_case_has_ten_points_two_mistakes_and_several_choices(cases):
    for found in cases.values():
        assert found.points == 10
        wrong = [line for line in found.plan.lines if line.wrong]
        assert len(wrong) == WRONG < len(found.plan.lines) and all(line.steps for line in wrong)
        defended = [option for option in found.choice.options if option.defended]
        assert 2 <= len(defended) < len(found.choice.options)


def test_the_sheet_has_nothing_of_the_answers_and_versions_differ(cases):
    for (name, seed), found in cases.items():
        sheet, key = asked(name, found), answered(name, found)
        parts = [each.said for each in found.readings] + [each.wrong for each in found.plan.lines]
        parts += [option.defended for option in found.choice.options]
        assert not any(part and part in sheet for part in parts), (name, seed)
        assert all(part in key for part in parts)
        results = [step.result for each in found.readings for step in each.steps]
        assert not any(f" {result} " in sheet for result in results if len(result) > 3)
    for name in NAMES:
        assert len({answered("", cases[name, seed]) for seed in SEEDS}) >= 3


@pytest.mark.parametrize("weeks", [14, 10, 6])
def test_a_syllabus_names_each_case_once_its_module_has_begun(cases, page, weeks):
    weeks = page(f"syllabus_{weeks}_weeks").split("\n### Week ")[1:]
    for name in NAMES:
        link = f"[{cases[name, 0].title}](case/{name}.py)"
        named = [at for at, week in enumerate(weeks) if link in " ".join(week.split())]
        begun = [at for at, week in enumerate(weeks) if f"(../modules/{name}.ipynb)" in week]
        assert len(named) == 1 and named[0] - begun[0] in (0, 1, 2), name


def test_03_the_table_gives_the_times_and_what_is_exposed(cases):
    for seed in SEEDS:
        found = cases["03_allreduce", seed]
        bus = {int(size.replace(",", "")): float(gb) * 1e9 for size, gb in found.table.rows}
        times = {size: 2 * 31 / 32 * size / rate for size, rate in bus.items()}
        short, long_ = (step.value for step in found.readings[0].steps)
        assert (short, long_) == pytest.approx((times[2**20], times[2**26]))
        sizes = {"1 MiB": 2**20, "4 MiB": 2**22, "64 MiB": 2**26, "256 MiB": 2**28}
        lengths = [float(each.do.split()[-2]) / 1e3 for each in found.choice.options[0].steps[1:]]
        for name, (whole, *exposed) in of(found).items():
            size = sizes[name]
            assert whole == pytest.approx(2**28 / size * times[size])
            for backward, left in zip(lengths, exposed, strict=True):
                free, count = 0.0, 2**28 // size
                for bucket in range(1, count + 1):
                    free = max(free, bucket * backward / count) + times[size]
                assert left == pytest.approx(free - backward)
        best = of(found)
        assert best["4 MiB"][1] < best["64 MiB"][1] and best["64 MiB"][2] < best["4 MiB"][2]
        for name in ("1 MiB", "256 MiB"):  # beaten at both lengths
            pairs = zip(best[name][1:], best["64 MiB"][1:], strict=True)
            assert all(worse > better for worse, better in pairs)


def test_04_the_table_is_the_papers_and_the_layouts_are_as_defended(cases):
    for seed in SEEDS:
        found = cases["04_model_parallel", seed]
        table = {(int(k), int(m)): float(gain) for k, m, gain in found.table.rows}
        assert table[8, 32] == 6.3 and table[2, 32] == 1.8
        first, share = (step.value for step in found.readings[0].steps)
        assert (first, share) == pytest.approx((6.3 / 1.8, 100 * 6.3 / 1.8 / 4))
        formula = found.readings[1].steps[-1].value
        assert formula == pytest.approx((8 / (1 + 7 / 32)) / (2 / (1 + 1 / 32)))
        layouts = of(found)
        fastest = min(step for step, *_ in layouts.values())
        assert layouts["tensor 4 × pipeline 2 × 2 replicas"][0] < 1.02 * fastest
        for option in found.choice.options:
            step, _, memory = values(option)
            can = step < 1.05 * fastest and memory < 70e9
            assert can == bool(option.defended), (seed, option.name)
        least = min(values(each)[2] for each in found.choice.options if each.defended)
        assert layouts["tensor 4 × pipeline 4"][2] == least
        largest = max(values(each)[1] for each in found.choice.options if each.defended)
        assert layouts["tensor 2 × pipeline 8"][1] == largest


def test_04_the_file_of_the_sheet_predicts_its_layout(cases):
    for seed in SEEDS:
        found = cases["04_model_parallel", seed]
        own = loads(found.choice.toml)
        assert own.strategy.batch == tomllib.loads(found.choice.toml)["strategy"]["batch"]
        seconds = float(predict(own).step_time)
        assert seconds == pytest.approx(of(found)["tensor 8 × pipeline 2"][0])


def test_05_the_table_gives_a_die_and_the_miss_of_the_prediction_is_shown(cases):
    for seed in SEEDS:
        found = cases["05_hybrid_parallel", seed]
        network, share, rate = found.table.rows[1]
        share, rate = float(share.rstrip("%")), 1e12 * float(rate)
        assert network == "175B" and found.readings[0].steps[0].value == pytest.approx(
            191.5e12, rel=1e-3
        )
        once = [step.value for step in found.readings[1].steps]
        assert once == pytest.approx([0.75 * rate, 0.75 * share])
        counted, above, bare, below, trillion = (step.value for step in found.readings[2].steps)
        step = predict(loads(found.choice.toml))
        flop = 640 * float(step.experiment.model.train_flop)
        assert bare == pytest.approx(flop / 1024 / float(step.step_time))
        assert counted == pytest.approx(4 / 3 * bare)
        assert (above, below) == pytest.approx(
            (100 * (counted / rate - 1), 100 * (bare / rate - 1))
        )
        assert below < -10 < 5 < above < 20 < trillion


def test_05_layouts_are_as_defended(cases):
    for seed in SEEDS:
        layouts = of(cases["05_hybrid_parallel", seed])
        best = [min(layouts, key=lambda name, at=at: layouts[name][at]) for at in range(4)]
        assert best == [
            "tensor 4 × pipeline 8",
            *["tensor 8 × pipeline 16"] * 2,
            "tensor 4 × pipeline 8",
        ]
        fastest = [layouts[name][at] for at, name in enumerate(best)]
        for option in cases["05_hybrid_parallel", seed].choice.options:
            near = values(option)[0] < 1.05 * fastest[0]
            assert near == bool(option.defended) and values(option)[1] < 66e9, option.name
        middle = layouts["tensor 4 × pipeline 16"]
        assert all(middle[at] < 1.03 * fastest[at] for at in (0, 2, 3))
        assert middle[1] < layouts["tensor 4 × pipeline 8"][1]
        assert layouts["tensor 8 × pipeline 16"][0] < 1.02 * fastest[0]


def test_09_the_rates_follow_from_the_table_and_measures_are_as_defended(cases):
    for seed in SEEDS:
        found = cases["09_state_and_failures", seed]
        planned, *unexpected = (int(many) for _, many in found.table.rows)
        assert planned + sum(unexpected) == 466 and sum(unexpected) == 419
        hours = 54 * 24 / sum(unexpected)
        job, gpu = (step.value for step in found.readings[0].steps)
        assert (job, gpu) == pytest.approx((3600 * hours, hours * 16384 / 24))
        left, mtbf = (step.value for step in found.readings[1].steps)
        assert left == sum(unexpected[2:]) and mtbf == pytest.approx(job * 419 / left)
        assert found.readings[2].steps[-1].value == pytest.approx(0.1 * 54 * 86400 / 466)
        measures = of(found)
        best = [max(measures, key=lambda name, at=at: measures[name][at]) for at in (0, 2)]
        assert best[0] == "asynchronous checkpoints" and best[1].startswith("spare nodes")
        assert {each.name for each in found.choice.options if each.defended} == set(best)
        worse = [each for name, each in measures.items() if name not in best]
        fast = measures[best[0]]
        assert all(goodput < fast[0] and later < fast[2] for goodput, _, later, _ in worse)


def test_09_the_file_of_the_sheet_has_the_goodput_of_its_best_interval(cases):
    for seed in SEEDS:
        found = cases["09_state_and_failures", seed]
        goodput, interval, *_ = of(found)["only the best interval"]
        own = loads(found.choice.toml).set({"run.checkpoint_interval": interval})
        assert 100 * float(predict(own).resilience.goodput) == pytest.approx(goodput)


def test_11_the_slowdown_follows_from_the_text_and_placements_are_as_defended(cases):
    for seed in SEEDS:
        found = cases["11_traces_and_waits", seed]
        assert found.readings[0].steps[0].value == pytest.approx(100 / 1.12)
        words = found.readings[1].ask
        few = float(words.split("is then ")[1].split("%")[0])
        many = float(words.split("of 352 ")[1].split("%")[0])
        grown = 100 * ((100 + many) / (100 + few) - 1)
        assert found.readings[1].steps[0].value == pytest.approx(grown, rel=0.01)
        assert found.readings[2].steps[0].value == pytest.approx(100 * grown / 12, rel=0.01)
        ways = of(found)
        fastest = [min(ways, key=lambda name, at=at: ways[name][at]) for at in range(3)]
        assert fastest == ["5 + 3", "4 + 4", "7 + 1"]
        assert ways["5 + 3"][0] < ways["6 + 2"][0] and ways["6 + 2"][2] < ways["5 + 3"][2]
        lost = [i > o for i, o in zip(ways["1 + 7"], ways["all, in turn"], strict=True)]
        assert all(lost)


def test_11_the_rank_that_waits_longest_is_not_the_slow_one(cases):
    for seed in SEEDS:
        found = cases["11_traces_and_waits", seed]
        line = next(line for line in found.plan.lines if "waits longest" in line.text)
        assert line.text.split()[1] != f"{line.steps[0].value}"


def test_12_the_rates_follow_from_the_table_and_the_text(cases):
    for seed in SEEDS:
        found = cases["12_train_a_language_model", seed]
        rates = {row[:2]: float(row[2].replace(",", "")) for row in found.table.rows}
        bf16, fp8 = rates["256 GB200", "bf16"], rates["256 GB200", "MXFP8"]
        used, every = (step.value for step in found.readings[0].steps)
        assert (used, every) == pytest.approx((6 * 37e9 * bf16, 6 * 671e9 * bf16))
        assert used < 2.5e15 < every
        faster, halved = (step.value for step in found.readings[1].steps)
        assert faster == pytest.approx(fp8 / bf16)
        assert 1 / (1 - halved / 200) == pytest.approx(fp8 / bf16)  # half of the part is gone
        each, over = (step.value for step in found.readings[2].steps)
        assert each == pytest.approx(14.8e12 / (2.664e6 * 3600), rel=1e-3)
        assert over == pytest.approx(each / 1297)


def test_12_more_expert_ranks_send_no_less_and_layouts_are_as_defended(cases):
    for seed in SEEDS:
        found = cases["12_train_a_language_model", seed]
        less, more = (step.value for step in found.plan.lines[3].steps)
        assert less < more < 4096 * 8 * 7168 * 2
        layouts = of(found)
        fits = {name: each for name, each in layouts.items() if each[2] < 80e9}
        fastest = min(step for step, *_ in fits.values())
        for option in found.choice.options:
            step, exchange, _, slow = values(option)
            can = option.name in fits and step < 1.1 * fastest
            assert can == bool(option.defended), (seed, option.name)
            assert 0 < exchange < step < slow
        near, lean = (
            layouts[f"{name}, ZeRO 1"]
            for name in ("8 expert ranks, by-device", "16 expert ranks, by-node")
        )
        assert near[0] == fastest and near[3] < 1.05 * near[0]
        assert lean[2] < 0.75 * near[2] and lean[3] > 1.1 * lean[0]


def test_12_the_file_of_the_sheet_predicts_its_layout(cases):
    for seed in SEEDS:
        found = cases["12_train_a_language_model", seed]
        seconds = float(predict(loads(found.choice.toml)).step_time)
        assert seconds == pytest.approx(of(found)["64 expert ranks, direct, no ZeRO"][0])


def test_13_the_answers_follow_from_the_table(cases):
    for seed in SEEDS:
        found = cases["13_serving", seed]
        rows = [[float(each.replace(",", "")) for each in row] for row in found.table.rows]
        (_, _, answers), (_, _, prompts), (asked_, said, both) = rows
        read, each = (step.value for step in found.readings[0].steps)
        assert read == pytest.approx(16 * prompts)
        assert each == pytest.approx(70.6e9 * (read + prompts)) and each < 1979e12
        cheap, dear, over = (step.value for step in found.readings[1].steps)
        assert cheap == pytest.approx(5 / 3600 / answers * 1e6)
        assert dear == pytest.approx(cheap * over) and over == pytest.approx(answers / prompts)
        token, written, rate, share = (step.value for step in found.readings[2].steps)
        assert 128 * token + 2048 * written == pytest.approx(2048 / answers)
        assert 2048 * token + 128 * written == pytest.approx(128 / prompts)
        assert asked_ * token + said * written == pytest.approx(said / rate)
        assert share == pytest.approx(100 * both / rate) and share < 80


def test_13_divisions_are_as_defended(cases):
    for seed in SEEDS:
        found = of(cases["13_serving", seed])
        best = [max(found, key=lambda name, at=at: found[name][at]) for at in range(3)]
        assert best == ["4 × 2", "2 × 4", "1 × 8"]
        assert found["4 × 2"][1] == found["4 × 2"][2] == 0 <= found["2 × 4"][2]
        assert found["2 × 4"][1] > 0
        assert all(
            own < (other or 1) for own, other in zip(found["8 × 1"], found["2 × 4"], strict=True)
        )
        options = cases["13_serving", seed].choice.options
        assert {option.name for option in options if option.defended} == set(best)


def test_13_twice_the_sequences_are_less_than_twice_the_tokens_and_the_file_runs(cases):
    for seed in SEEDS:
        found = cases["13_serving", seed]
        one, two, gain = (step.value for step in found.plan.lines[2].steps)
        assert one < two and gain == pytest.approx(2 * one / two) and 1 < gain < 2
        prompt, answer = (step.value for step in found.plan.lines[4].steps)
        assert answer > 50 * prompt
        curve = predict_service(read_service(tomllib.loads(found.choice.toml))).curve
        most = max(each.tokens_per_second for each in curve if each.tpot <= 0.025)
        assert most == of(found)["1 × 8"][0]
