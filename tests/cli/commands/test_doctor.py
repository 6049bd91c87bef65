"""`rightsizer doctor`: the places it checks."""

from rightsizer_cli.main import execute


def test_an_unknown_place_is_one_error(capsys):
    assert execute(["doctor", "nowhere"]) == 2
    assert capsys.readouterr().err == "error: WHERE: 'nowhere': write machine, kubernetes, slurm\n"
