"""Laws of findings: what holds, what does not, what could not be checked; and seeds from names."""

from lib_dlhpc.labs.findings import Finding, as_text, broken, kept, later, passed, seed_of


def test_a_name_is_a_seed_whatever_its_case_and_spaces():
    assert seed_of(" Your  Name") == seed_of("your name") != seed_of("yourname")


def test_findings_count_what_holds_and_what_could_not_be_checked():
    some = [kept("a", "fine"), broken("b", "wrong"), later("c")]
    assert not passed(some) and passed(some[:1])
    text = as_text(some)
    assert "✓ a. fine" in text and "✗ b. wrong" in text and "· c." in text and "1 of 3 hold" in text
    assert as_text([Finding("a", True, "")]).endswith("All 1 hold.")
