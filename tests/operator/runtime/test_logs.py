import io
import json
import logging

import kopf
import pytest

from rightsizer_operator.runtime.logs import log_handler
from rightsizer_operator.values.metadata import log_fields


@pytest.fixture
def lines():
    """lines(format, log): what log(logger) writes."""

    def written(log_format, log):
        stream, logger = io.StringIO(), logging.getLogger("rightsizer.operator.test")
        handler = log_handler(log_format, stream)
        logger.addHandler(handler)
        try:
            log(logger)
        finally:
            logger.removeHandler(handler)
        return stream.getvalue().splitlines()

    return written


def about_a_plan(logger):
    logger.warning("waits for %s", "GPUs\nand more", extra=log_fields(("team", "demo")))


def of_kopf(logger):
    reference = {"kind": "TrainingPlan", "name": "demo", "namespace": "team", "uid": "1"}
    settings = kopf.OperatorSettings()
    logger.warning("slow", extra={"k8s_ref": reference, "k8s_skip": True, "settings": settings})


def with_a_traceback(logger):
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logger.exception("unexpected error")


@pytest.mark.parametrize("log", [about_a_plan, of_kopf], ids=lambda log: log.__name__)
def test_a_json_record_names_its_plan_and_has_a_line_of_its_own(lines, log):
    (line,) = lines("json", log)
    record = json.loads(line)
    assert (record["namespace"], record["plan"], record["level"]) == ("team", "demo", "WARNING")
    assert record.keys() == {"level", "logger", "message", "namespace", "plan", "time"}


def test_a_json_record_holds_its_traceback(lines):
    (line,) = lines("json", with_a_traceback)
    assert json.loads(line)["exc_info"].endswith("ValueError: two\nlines")


@pytest.mark.parametrize("log", [about_a_plan, of_kopf], ids=lambda log: log.__name__)
def test_a_line_of_text_begins_with_the_plan(lines, log):
    assert "rightsizer.operator.test team/demo: " in lines("text", log)[0]


def test_text_without_a_plan_is_only_the_message(lines):
    (line,) = lines("text", lambda logger: logger.warning("relist failed"))
    assert line.endswith("WARNING rightsizer.operator.test relist failed")
