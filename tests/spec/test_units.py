"""Laws of quantities: they round-trip, and errors name the reason."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib_dlhpc.errors import SpecError
from lib_dlhpc.spec.units import (
    FACTORS,
    LONGEST,
    count,
    format_energy,
    format_quantity,
    format_times,
    parse_quantity,
)

UNITS = ("s", *FACTORS)

GOOD = [
    ("100 Gb/s", "B/s", 12.5e9),
    ("12.5 GB/s", "B/s", 12.5e9),
    ("100 Gbit/s", "B/s", 12.5e9),
    ("16 GiB", "B", 16 * 2**30),
    ("16 GB", "B", 16e9),
    ("8 Mib", "B", 2**20),
    ("25MB", "B", 25e6),
    ("1.5 us", "s", 1.5e-6),
    ("1.5 µs", "s", 1.5e-6),
    ("3 ms", "s", 3e-3),
    ("7 ns", "s", 7e-9),
    ("20 min", "s", 1200.0),
    ("2 h", "s", 7200.0),
    ("2 days", "s", 172800.0),
    ("1 year", "s", 365.25 * 86400),
    ("10.6 TFLOP/s", "FLOP/s", 10.6e12),
    ("50 MFLOP", "FLOP", 50e6),
    ("1.2 kW", "W", 1200.0),
    ("2 kWh", "J", 7.2e6),
    ("50 kop/s", "op/s", 50e3),
    ("1_281_167", "", 1281167.0),
    ("2 billion", "", 2e9),
    ("1e3", "B", 1000.0),
    ("1.5e-6 s", "s", 1.5e-6),
    (".5 GB", "B", 0.5e9),
    (" 5 GB ", "B", 5e9),
    ("-3 s", "s", -3.0),
    (7, "B", 7.0),
    (2.5, "s", 2.5),
]

# Another quantity, a case that means something else, no number, two numbers, nothing.
BAD = [
    ("100 Gb/s", "B"),
    ("16 GB", "B/s"),
    ("5 min", "B"),
    ("5 GB", "s"),
    ("5 Ms", "s"),
    ("5 gb", "B"),
    ("5 mB", "B"),
    ("10 Gbit", "B/s"),
    ("3 W", "J"),
    ("2 GiFLOP", "FLOP"),
    ("2 KiW", "W"),
    ("", "B"),
    ("GB", "B"),
    ("five GB", "B"),
    ("1 2 GB", "B"),
    ("1.2.3 GB", "B"),
    ("nan", "B"),
    ("inf", "B"),
    ("1 GB\n2", "B"),
]


@pytest.mark.parametrize(("text", "unit", "value"), GOOD)
def test_a_quantity_is_read_in_si_units(text, unit, value):
    assert parse_quantity(text, unit) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(("text", "unit"), BAD)
def test_a_bad_text_names_the_field_the_text_and_a_legal_spelling(text, unit):
    with pytest.raises(SpecError) as error:
        parse_quantity(text, unit, "machine.device.memory")
    assert "machine.device.memory" in str(error.value)
    assert repr(text) in str(error.value)
    assert "a string such as" in str(error.value)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("value", [True, False, None, [1], {}, math.nan, 10**400, b"1", 1j])
def test_what_is_no_number_is_refused_by_name(value, unit):
    with pytest.raises(SpecError, match=r"^run\.epochs"):
        parse_quantity(value, unit, "run.epochs")


@pytest.mark.parametrize("text", ["1 x" + " " * 500_000 + "y", "1" * 500_000 + "\n1", "1_" * 9**6])
def test_a_long_text_is_refused_at_once_and_not_repeated(text):
    with pytest.raises(SpecError) as error:
        parse_quantity(text, "B", "strategy.bucket")
    assert len(str(error.value)) < 200


def test_the_longest_text_is_still_read():
    assert parse_quantity("1".rjust(LONGEST), "B") == 1


@given(st.sampled_from(UNITS), st.floats(1e-9, 1e21), st.sampled_from([1.0, -1.0]))
def test_what_is_shown_reads_back_to_the_digits_shown(unit, size, sign):
    for digits in (3, 9):
        shown = format_quantity(sign * size, unit, digits)
        assert parse_quantity(shown, unit) == pytest.approx(
            sign * size, rel=0.51 * 10 ** (1 - digits)
        )


@given(st.sampled_from(UNITS), st.floats(1.0, 8e9))
def test_what_is_shown_is_short_and_has_its_unit(unit, size):
    shown = format_quantity(size, unit)
    number, _, symbol = shown.partition(" ")
    assert len(number) <= 7
    assert unit == "s" or symbol.endswith(unit)
    assert "e" not in number


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (12.5e9, "B/s", "12.5 GB/s"),
        (0, "s", "0 s"),
        (5.68e-16, "s", "0 s"),
        (-9.9e-13, "s", "0 s"),
        (1e-12, "s", "0.001 ns"),
        (0, "B", "0 B"),
        (999.9999, "B", "1 kB"),
        (1.5e-6, "s", "1.5 µs"),
        (7200, "s", "2 h"),
        (90 * 60, "s", "90 min"),
        (86400 * 90, "s", "90 days"),
        (2e9, "", "2 billion"),
        (1500.0, "g", "1.5 kg"),
        (2.19e8, "g", "219 t"),
        (1234.0, "device-hours", "1,234 device-hours"),
        (0.01, "device-hours", "0.01 device-hours"),
        (5.04e-5, "device-hours", "0.181 device-seconds"),
        (0.0, "device-hours", "0 device-hours"),
        (math.inf, "B/s", "unlimited B/s"),
        (math.nan, "B", "not known"),
    ],
)
def test_format_table(value, unit, shown):
    assert format_quantity(value, unit) == shown


def test_one_thing_is_not_several():
    assert [count(n, "node") for n in (0, 1, 2, 1024)] == [
        *("0 nodes", "1 node", "2 nodes", "1,024 nodes")
    ]


@pytest.mark.parametrize(
    ("joules", "words"),
    [(0.0, "0 J"), (3599, "3.6 kJ"), (3600, "1 Wh"), (3.6e6, "1 kWh"), (1e14, "27.8 GWh")],
)
def test_energy_is_in_watt_hours_from_one_on(joules, words):
    assert format_energy(joules) == words


@pytest.mark.parametrize("shortest", [2e-7, 0.3, 90.0, 8e4, 4e8])
def test_a_column_of_times_has_the_unit_of_the_shortest(shortest):
    times = [shortest, 30 * shortest, 2000 * shortest, 0.0, math.inf]
    first, *longer, none, endless = format_times(times)
    assert first == format_quantity(shortest, "s")
    assert {each.split()[-1] for each in longer} == {first.split()[-1]}
    assert (none, endless) == ("0 s", "unlimited s")
