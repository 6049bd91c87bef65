import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rightsizer_engine import units
from rightsizer_engine.errors import QuantityError

PARSERS = (units.parse_tokens, units.parse_duration_s, units.parse_bytes, units.parse_usd)


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [
        (units.parse_tokens, "100B", 100e9),
        (units.parse_tokens, "1.5T", 1.5e12),
        (units.parse_tokens, "4.1M", 4_100_000.0),
        (units.parse_tokens, "300k", 300e3),
        (units.parse_tokens, "1e9", 1e9),
        (units.parse_tokens, 4_194_304, 4_194_304.0),
        (units.parse_tokens, 1.5e9, 1.5e9),
        (units.parse_duration_s, "72h", 259_200.0),
        (units.parse_duration_s, "3d", 259_200.0),
        (units.parse_duration_s, "90m", 5_400.0),
        (units.parse_duration_s, "45s", 45.0),
        (units.parse_duration_s, "3-00:00:00", 259_200.0),
        (units.parse_duration_s, "2-0", 172_800.0),
        (units.parse_duration_s, "1-12:30", 131_400.0),
        (units.parse_duration_s, "72:00:00", 259_200.0),
        (units.parse_duration_s, "2w", 1_209_600.0),
        (units.parse_duration_s, "1h30m", 5_400.0),
        (units.parse_duration_s, "1d12h", 129_600.0),
        (units.parse_bytes, "80GiB", 80 * 2**30),
        (units.parse_bytes, "80Gi", 80 * 2**30),
        (units.parse_bytes, "80GB", 80e9),
        (units.parse_bytes, "512MiB", 2.0**29),
        (units.parse_bytes, 1024, 1024.0),
        (units.parse_network_bytes_per_s, 50, 50e9),
        (units.parse_network_bytes_per_s, "12.5", 12.5e9),
        (units.parse_network_bytes_per_s, "50GB/s", 50e9),
        (units.parse_network_bytes_per_s, "400Gbps", 50e9),
        (units.parse_network_bytes_per_s, "400Gb/s", 50e9),
        (units.parse_network_bytes_per_s, "0.8Tbps", 100e9),
        (units.parse_network_bytes_per_s, "NDR200", 25e9),
        (units.parse_network_bytes_per_s, "hdr100", 12.5e9),
        (units.parse_network_bytes_per_s, "4x NDR200", 25e9),
        (units.parse_network_bytes_per_s, "200GbE", 25e9),
        (units.parse_link_bytes_per_s, "450GB/s", 450e9),
        (units.parse_link_bytes_per_s, 16, 16e9),
        (units.parse_link_bytes_per_s, "PCIe4 x8", 15.75e9),
        (units.parse_link_bytes_per_s, "PCIe5 x16", 63e9),
        (units.parse_usd, "60000", 60_000.0),
        (units.parse_usd, "$8,500", 8_500.0),
        (units.parse_usd, "60k", 60_000.0),
        (units.parse_usd, 0.5, 0.5),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_what_people_write_is_read(parse, text, expected):
    assert parse(text) == expected


@pytest.mark.parametrize("parse", PARSERS, ids=lambda p: p.__name__)
@pytest.mark.parametrize(
    "value",
    [
        *(
            "",
            " ",
            "-5",
            "nan",
            "inf",
            "1e999",
            "0",
            "9" * 60,
            "five",
            "5 5",
            "1..5",
            "4Q",
            "1,0",
            "\u0663",
            "5\n",
        ),
        *(True, None, -1, 0, float("nan"), float("inf"), 10**5000, [], {}),
    ],
    ids=lambda v: repr(v)[:12] if not isinstance(v, int) or abs(v) < 10**9 else "huge",
)
def test_nonsense_is_refused_with_the_field_and_a_remedy(parse, value):
    with pytest.raises(QuantityError, match=r"^spec\.x: .*write ") as caught:
        parse(value, field="spec.x")
    assert caught.value.field == "spec.x"
    assert len(str(caught.value)) < 220


@pytest.mark.parametrize("value", [72, 72.5, "72", "30m1h", "1h1h", "1y", "72 h", "P3D"])
def test_a_duration_needs_ordered_units(value):
    with pytest.raises(QuantityError, match="72h, 3d, 90m"):
        units.parse_duration_s(value)


@pytest.mark.parametrize("value", ["80G", "80", "80gib", "80 GiB"])
def test_ambiguous_byte_units_are_refused(value):
    with pytest.raises(QuantityError, match="80GiB"):
        units.parse_bytes(value)


@pytest.mark.parametrize("parse", PARSERS, ids=lambda p: p.__name__)
@given(value=st.one_of(st.text(max_size=50), st.from_regex(r"[0-9]{1,3}[.,]?[0-9]{0,3}[kKMGTPiBwdhms]{0,3}")))
def test_any_text_parses_or_is_a_quantity_error(parse, value):
    with contextlib.suppress(QuantityError):
        assert parse(value) > 0


@given(st.floats(min_value=1, max_value=9e17))
def test_formatted_tokens_read_back(tokens):
    assert units.parse_tokens(units.format_tokens(tokens)) == pytest.approx(tokens, rel=6e-4)


@given(st.floats(min_value=1, max_value=1e18))
def test_formatted_bytes_read_back(size):
    assert units.parse_bytes(units.format_bytes(size)) == pytest.approx(size, rel=6e-4)


@given(st.floats(min_value=1e-3, max_value=3e9))
def test_formatted_durations_read_back(seconds):
    assert units.parse_duration_s(units.format_duration(seconds)) == pytest.approx(seconds, rel=9e-3)


@given(st.floats(min_value=0.01, max_value=9e11))
def test_formatted_dollars_read_back(usd):
    assert units.parse_usd(units.format_usd(usd)) == pytest.approx(usd, abs=0.5, rel=1e-9)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (units.format_tokens(100e9), "100B"),
        (units.format_count(8_030_261_248), "8.03B"),
        (units.format_count(999_999), "1M"),
        (units.format_count(7), "7"),
        (units.format_bytes(80 * 2**30), "80GiB"),
        (units.format_bytes(100), "100B"),
        (units.format_duration(61.2 * 3600), "61h12m"),
        (units.format_duration(123 * 3600), "5d3h"),
        (units.format_duration(3599.9), "1h"),
        (units.format_duration(12.54), "12.5s"),
        (units.format_duration(float("inf")), "unbounded"),
        (units.format_duration(-90), "-1m30s"),
        (units.format_usd(8_500), "$8,500"),
        (units.format_usd(2.5), "$2.50"),
    ],
    ids=str,
)
def test_formats_are_short_and_plain(text, expected):
    assert text == expected


@pytest.mark.parametrize("rate", [400, "400", "400GB/s", "3200Gbps", "400G", "400gbps"])
def test_a_network_that_no_gpu_has_is_refused_with_the_remedy(rate):
    with pytest.raises(QuantityError, match="400Gbps, 50GB/s or 50"):
        units.parse_network_bytes_per_s(rate)


@pytest.mark.parametrize(
    ("text", "gpus", "gbit_s"), [("4x NDR200", 4, 200), ("2x HDR", 8, 50), ("NDR", 8, 400)]
)
def test_a_node_s_cards_are_shared_by_its_gpus(text, gpus, gbit_s):
    assert units.parse_network_bytes_per_s(text, gpus_per_node=gpus) == gbit_s / 8 * 1e9


@pytest.mark.parametrize("text", ["PCIe4", "PCIe2 x8", "PCIe4 x2", "NVLink", "5000GB/s", ""])
def test_a_link_that_no_node_has_is_refused(text):
    with pytest.raises(QuantityError, match="PCIe4 x8"):
        units.parse_link_bytes_per_s(text)
