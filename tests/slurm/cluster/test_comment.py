import pytest

from rightsizer_api import sizing
from rightsizer_api.short_names import SHORT_NAMES
from rightsizer_engine.errors import InputError, RightsizerError
from rightsizer_slurm.cluster.comment import LONGEST, is_ours, keys, parse, plan_of, subject

FULL = "rightsizer: model=llama-3.1-8b tokens=100B deadline=72h gpu=H100,A100 min=8 max=64 elastic=auto"


def test_a_comment_means_the_plan_that_flags_and_a_manifest_would() -> None:
    spec = plan_of(parse(FULL)).spec
    assert (spec.model.name, spec.workload.tokens, spec.deadline.finish_within) == (
        "llama-3.1-8b",
        "100B",
        "72h",
    )
    assert spec.resources.gpu_types == ("H100", "A100")
    assert (spec.resources.min_gpus, spec.resources.max_gpus, spec.elasticity.mode) == (8, 64, "Auto")


def test_every_short_name_of_the_flags_is_a_key_but_files() -> None:
    assert {name.replace("_", "-") for name in SHORT_NAMES} - set(keys()) == {"config"}


@pytest.mark.parametrize("key", [name for name in SHORT_NAMES if name != "config"])
def test_a_key_may_have_dashes_underscores_or_capitals(key: str) -> None:
    parsed = [set(parse(f"rightsizer: {word}=1").given) for word in (key, key.replace("_", "-"), key.upper())]
    assert parsed == [{SHORT_NAMES[key]}] * 3


@pytest.mark.parametrize(
    ("word", "path", "value"),
    [
        ("workload.sequenceLength=4096", "workload.sequenceLength", 4096),
        ("spec.layout.tp=8", "layout.tp", 8),
        ("confidence=0.8", "deadline.confidence", 0.8),
        ("compile=TRUE", "workload.compile", True),
        ("method=LoRA", "workload.method", "lora"),
        ("model='a b'", "model.name", "a b"),
        ('model="a=b"', "model.name", "a=b"),
        ("tokens=5000000", "workload.tokens", "5000000"),
        ("finish-by=2027-03-01T08:00:00+01:00", "deadline.finishBy", "2027-03-01T08:00:00+01:00"),
    ],
)
def test_a_value_has_the_type_of_its_field(word: str, path: str, value: object) -> None:
    assert parse(f"rightsizer: {word}").given == {path: value}


@pytest.mark.parametrize(
    ("comment", "field", "remedy"),
    [
        ("rightsizer:", "comment", "is empty"),
        ("rightsizer: modle=x", "modle", "did you mean model?"),
        ("rightsizer: deadlin=3h", "deadlin", "did you mean deadline?"),
        ("rightsizer: maxgpu=3", "maxgpu", "did you mean max-gpus?"),
        ("rightsizer: zzzz=3", "zzzz", "known: plan, model,"),
        ("rightsizer: model=a model=b", "model", "is set twice"),
        ("rightsizer: min=1 min-gpus=2", "min-gpus", "is set twice (min, min-gpus)"),
        ("rightsizer: model", "comment", "is not key=value"),
        ("rightsizer: model = a", "comment", "is not key=value"),
        ('rightsizer: model="a', "comment", "is not key=value"),
        ("rightsizer: model='a'b", "comment", "is not key=value"),
        ("rightsizer: model=a;b", "comment", "is not allowed in a comment"),
        ("rightsizer: model=a\nb=c", "comment", "is not allowed in a comment"),
        ("rightsizer: model=\x00", "comment", "is not allowed in a comment"),
        ("rightsizer: model=\u00e4", "comment", "is not allowed in a comment"),
        ("rightsizer: workload.lora=3", "workload.lora", "is a group of fields"),
        ("rightsizer: config=/etc/passwd", "config", "names a file"),
        ("rightsizer: model.configPath=/etc/passwd", "model.configPath", "names a file"),
        ("rightsizer: model=" + "x" * LONGEST, "comment", "has more than 1024 characters"),
    ],
)
def test_a_wrong_comment_is_one_error_with_the_word_and_the_remedy(
    comment: str, field: str, remedy: str
) -> None:
    with pytest.raises(InputError) as raised:
        parse(comment)
    assert raised.value.field == field
    assert remedy in str(raised.value)


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ("tokens=1B", "model"),
        ("model=x", "tokens"),
        ("model=x tokens=1Q", "tokens"),
        ("model=x tokens=1B deadline=3", "deadline"),
        ("model=x tokens=1B elastic=perhaps", "elastic"),
        ("model=x tokens=1B gpus=many", "gpus"),
        ("model=x tokens=1B min=9 max=8", "min"),
    ],
)
def test_an_error_of_the_plan_names_the_key_that_was_written(words: str, field: str) -> None:
    with pytest.raises(RightsizerError) as raised:
        plan_of(parse(f"rightsizer: {words}"))
    assert raised.value.field == field


def test_words_go_over_the_plan_of_a_file_and_replace_their_rivals() -> None:
    beneath = plan_of(parse("rightsizer: model=a tokens=1B deadline=72h framework=megatron"))
    over = parse("rightsizer: plan=/p.yaml finish-by=2030-01-01T00:00:00Z model=llama-3.1-8b")
    spec = plan_of(over, beneath=beneath).spec
    assert over.plan == "/p.yaml"
    assert (spec.deadline.finish_within, spec.model.name, spec.launch.framework) == (
        None,
        "llama-3.1-8b",
        "megatron",
    )


def test_the_plan_of_a_comment_can_be_sized() -> None:
    request = sizing.resolve(plan_of(parse(FULL))).request()
    assert [cluster.gpu.name for cluster in request.clusters] == ["H100-SXM5-80GB", "A100-SXM4-80GB"]


@pytest.mark.parametrize(
    ("comment", "ours"), [("rightsizer: x=1", True), ("  rightsizer:", True), ("a rightsizer:", False)]
)
def test_only_what_begins_with_our_name_is_ours(comment: str, ours: bool) -> None:
    assert is_ours(comment) is ours


def test_a_subject_is_the_model_and_method_without_amount_and_deadline() -> None:
    same = [
        "model=a tokens=1B deadline=2h",
        "deadline=3h model=a tokens=2B max=4 gpu=A100",
        "tokens=1B model=a",
    ]
    other = ["model=b tokens=1B", "model=a tokens=1B method=lora", "model=a tokens=1B sequence-length=8192"]
    subjects = [subject(parse(f"rightsizer: {words}")) for words in (*same, *other)]
    assert (len(set(subjects[:3])), len(set(subjects))) == (1, 4)
