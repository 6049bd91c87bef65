"""`rightsizer operator`: options that are wrong are refused before anything starts."""

import pytest

from rightsizer_cli.main import execute


@pytest.mark.parametrize(
    ("option", "value", "remedy"),
    [
        ("--device-class", "../secrets", "must be a DeviceClass, such as gpu.nvidia.com"),
        ("--metrics-from", "[]", "must be a NetworkPolicyPeer as JSON"),
        ("--cap", "nlp=Always", "must be one of Off, Recommend, Auto"),
        ("--log-format", "xml", "must be one of text, json"),
    ],
)
def test_a_wrong_option_is_one_error(capsys, option, value, remedy):
    assert execute(["operator", option, value]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {option}:")
    assert remedy in line
