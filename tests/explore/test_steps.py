"""Steps: exchanged as a whole, deaf to what is gone, still while they serve."""

from lib_dlhpc.explore.blocks.steps import Steps

FEW, MANY = [("1", 1), ("2", 2)], [("1", 1), ("2", 2), ("64", 64), ("4,200", 4200)]


def test_a_slider_that_is_gone_is_not_heard():
    steps, heard = Steps("Nodes", "Nodes used"), []
    steps.offer(MANY, 64)
    old = steps.children[0]
    steps.offer(FEW, 2)
    steps.observe(lambda event: heard.append(event["new"]), "value")
    old.value = 1  # the browser fits the old place to new options
    assert steps.value == 2 and not heard
    steps.children[0].value = 1
    assert steps.value == 1 and heard == [1]


def test_steps_that_serve_are_left_alone():
    steps = Steps("Nodes", "Nodes used")
    steps.offer([("3", 3), *MANY], 3)
    slider = steps.children[0]
    steps.offer(MANY, 64)
    assert steps.children[0] is slider and slider.value == 64
    steps.offer([*MANY[:3], ("65", 65), MANY[3]], 65)
    assert steps.children[0] is not slider and steps.value == 65
