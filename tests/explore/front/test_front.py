"""The front door shows what the engines compute, and every module and lab once."""

import json
import re
from statistics import median

import pytest
from published_rows import scored

from lib_dlhpc import predict
from lib_dlhpc.explore import course
from lib_dlhpc.explore.front import page, results, share, thumbnails
from lib_dlhpc.explore.server.serve import in_course
from lib_dlhpc.prediction.validation.validate import standings


def test_modules_and_labs_of_the_path_are_those_of_the_repository(repository):
    notebooks = {file.name for file in (repository / "modules").glob("*.ipynb")}
    assert {module.file for module in course.PATH} | {course.EXPLORER} == notebooks
    labs = {file.parent.name for file in (repository / "labs").glob("*/checks.py")}
    assert set(course.LABS) == labs
    assert sorted(lab for module in course.PATH for lab in module.labs) == sorted(labs)
    readme = (repository / "labs" / "README.md").read_text("utf-8")
    of = {lab: module for module in course.PATH for lab in module.labs}
    for folder, lab in course.LABS.items():
        after = rf"\| \[{of[folder].number}\]\(../modules/{of[folder].file}\) \| {lab.minutes} \|"
        assert re.search(rf"{lab.title}\]\({folder}/README.md\) {after}", readme)


def test_the_list_of_labs_links_each_to_its_module():
    item = page.lab_item("04_pipeline")
    assert 'href="voila/render/04_model_parallel.ipynb">module 04</a>' in item and "90 min" in item


@pytest.mark.parametrize("module", course.PATH, ids=lambda module: module.number)
def test_a_module_asks_what_its_notebook_asks_and_comes_after_what_it_needs(repository, module):
    cells = json.loads((repository / "modules" / module.file).read_text("utf-8"))["cells"]
    title = "".join(cells[0]["source"]).splitlines()[0]
    assert module.question.casefold() in title.casefold()
    before = [other.number for other in course.PATH[: course.PATH.index(module)]]
    assert set(module.needs) <= set(before)


def test_a_module_is_recorded_under_the_folder_that_its_notebook_imports(repository):
    assert {module.number for module in course.PATH} == set(course.RECORDED.values())
    for folder, number in course.RECORDED.items():
        (notebook,) = (repository / "modules").glob(f"{number}_*.ipynb")
        assert f"lib_dlhpc.explore.{folder}" in notebook.read_text("utf-8")
    assert course.title_of("data_parallel") == "module 02 data parallel"
    assert course.title_of("01_data_parallel_step") == "lab 01 data parallel step"
    assert course.title_of("my_own") == "module my own"


def test_places_in_the_path():
    first, last = course.PATH[0], course.PATH[-1]
    assert course.place(first.file) == (None, first, course.PATH[1])
    assert course.place(last.file) == (course.PATH[-2], last, None)
    assert course.place("other.ipynb") == (None, None, None)


def test_a_step_is_what_prediction_and_simulation_say():
    run = results.goyal()
    now, prediction = results.step(run), predict(run)
    assert now["minutes"] == pytest.approx(float(prediction.time_to_train) / 60, abs=0.006)
    assert now["speedup"] / now["gpus"] == pytest.approx(now["efficiency"], abs=2e-3)
    lost = now["waiting"] + now["exposed"]
    assert now["efficiency"] + lost == pytest.approx(1, abs=2e-3)
    slowest = max(rank["backward"] for rank in now["ranks"])
    assert slowest == now["slowest"] < now["end"]
    assert now["end"] == pytest.approx(now["mean"], rel=0.1)  # one step, and the mean of all


@pytest.mark.parametrize("folder", course.RECORDED)
def test_a_picture_has_marks_within_its_frame(folder):
    picture = getattr(thumbnails, folder)()
    assert picture.count("<rect") + picture.count("<path") >= 2
    for x, width in re.findall(r'x="([-\d.]+)" y="[-\d.]+" width="([\d.]+)"', picture):
        assert float(x) >= 0 and float(x) + float(width) <= thumbnails.WIDTH + 0.1


def test_a_class_whose_name_says_little_is_said_in_other_words():
    found = {row.group for row in scored()}
    assert set(results.SAID) <= found
    assert not set(results.SAID.values()) & found


def test_a_card_has_the_number_of_its_module_and_those_of_what_it_builds_on():
    for module in course.PATH:
        after = f" · after {', '.join(sorted(module.needs))}" if module.needs else ""
        assert f"<small>{module.number}{after} · " in page.card(module)


def test_each_page_leads_on_and_the_last_one_to_a_run_of_ones_own(repository):
    files = [course.EXPLORER, *(module.file for module in course.PATH)]
    places = [in_course(repository / "modules" / file) for file in files]
    assert [place["after"] and place["after"]["file"] for place in places] == [*files[1:], None]
    assert [place["at"] for place in places] == list(range(len(files)))
    assert places[-1]["explorer"] == course.EXPLORER


def test_it_is_cited_as_the_repository_says(repository):
    citation, about = (repository / "CITATION.cff").read_text("utf-8"), page.about()
    for key, value in (
        ("title", page.TITLE),
        ("version", about["version"]),
        ("license", page.LICENSE),
    ):
        found = re.search(rf"^{key}: (.*)$", citation, re.MULTILINE)[1].strip('"')
        assert found == value and value in about["cite"]


def test_every_published_row_is_in_the_page():
    text = page.front_page().read_text(encoding="utf-8")
    rows = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])["proof"]
    assert len(rows) > 150
    known = {name for name, found in standings().items() if found.status == "scored"}
    assert set(re.findall(r'<tr id="([^"]+)">', text)) == known
    assert f"of {len(known)} published results" in text
    errors = [abs(row.error) for row in scored()]
    for name, words in {
        "within 10%": f"{sum(error <= 0.1 for error in errors) / len(errors):.0%}",
        "median error": f"{median(errors):.1%}",
        "off by over 25%": sum(error > 0.25 for error in errors),
    }.items():
        assert f"<dt>{name}</dt><dd>{words}</dd>" in text
    assert f"Start: one step, {course.PATH[0].minutes} min" in text
    assert text.count("</small></th>") == len(known) and "https://arxiv.org/abs/1706.02677" in text
    for identity, *_ in rows:
        assert f'<tr id="{identity}">' in text
    assert not re.search(r'src="https?:|<link[^>]*href="https?:', text)  # a link is not a request


def test_a_link_to_the_front_door_is_shown_with_a_picture_of_the_size_that_it_names():
    text = page.front_page().read_text(encoding="utf-8")
    named = dict(re.findall(r'property="og:([\w:]+)" content="([^"]*)"', text))
    head = share.PICTURE.read_bytes()[:24]  # its command: python -m lib_dlhpc.explore.front.share
    assert named["image"].endswith(f"/{share.PICTURE.name}") and head.startswith(b"\x89PNG")
    size = [str(int.from_bytes(head[at : at + 4], "big")) for at in (16, 20)]
    assert size == [named["image:width"], named["image:height"]]
    assert tuple(re.split(r"(?<=\.) ", named["title"])) == share.TITLE


def test_the_picture_of_a_link_shows_each_rank_from_the_beginning_to_the_end_of_the_step():
    step = {"gpus": 8, "slowest": 9.0, "end": 10.0}
    step["ranks"] = [{"forward": 2.0, "backward": done} for done in (8.0, 9.0)]
    widths = [
        float(each) for each in re.findall(r'width="([\d.]+)" height="24"', share.picture(step))
    ]
    assert sum(widths) == pytest.approx(2 * (share.WIDTH - 2 * share.LEFT), abs=0.5)
