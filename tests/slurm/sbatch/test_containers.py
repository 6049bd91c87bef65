import signal

import pytest

from rightsizer_engine.catalog import lookup
from rightsizer_engine.errors import InputError
from rightsizer_slurm.sbatch.containers import Container, Runtime, checked_image, checked_mount, runtime_of


def _container(runtime, image):
    return Container(runtime=runtime, image=image, mounts=("/run", "/home", "/run"), directory="/home")


@pytest.mark.parametrize(
    ("image", "pyxis", "apptainer"),
    [
        ("ghcr.io/acme/train:1.4", "ghcr.io#acme/train:1.4", "docker://ghcr.io/acme/train:1.4"),
        ("acme/train", "acme/train", "docker://acme/train"),
        ("train:2", "train:2", "docker://train:2"),
        ("/images/train.sqsh", "/images/train.sqsh", "/images/train.sqsh"),
        ("train.sif", "train.sif", "train.sif"),
        ("localhost:5000/t", "localhost:5000#t", "docker://localhost:5000/t"),
        ("nvcr.io#a/b", "nvcr.io#a/b", "docker://nvcr.io#a/b"),
        ("oras://r/i:1", "oras://r/i:1", "oras://r/i:1"),
    ],
)
def test_an_image_is_written_as_each_runtime_reads_it(image, pyxis, apptainer):
    assert _container(Runtime.PYXIS, image).srun_options()[0] == f"--container-image={pyxis}"
    assert _container(Runtime.APPTAINER, image).prefix(lookup.gpu("H100"))[-1] == apptainer


@pytest.mark.parametrize(("gpu", "option"), [("H100", "--nv"), ("MI300X", "--rocm")])
def test_apptainer_brings_the_driver_of_the_gpu(gpu, option):
    prefix = _container(Runtime.SINGULARITY, "i.sif").prefix(lookup.gpu(gpu))
    assert prefix[:3] == ("singularity", "exec", option)


def test_a_stop_leaves_the_fuse_server_of_apptainer_alone():
    assert _container(Runtime.APPTAINER, "i.sif").stop_signal == signal.SIGURG
    assert _container(Runtime.PYXIS, "i").stop_signal == signal.SIGTERM


def test_a_folder_is_mounted_once():
    prefix = _container(Runtime.APPTAINER, "i.sif").prefix(lookup.gpu("H100"))
    assert [word for word in prefix if word.startswith("--bind")] == [
        "--bind=/run:/run",
        "--bind=/home:/home",
    ]
    assert "--container-mounts=/run:/run,/home:/home" in _container(Runtime.PYXIS, "i").srun_options()


@pytest.mark.parametrize(
    ("srun_help", "commands", "runtime"),
    [
        ("  --container-image=IMG", ["apptainer"], Runtime.PYXIS),
        ("", ["apptainer", "singularity"], Runtime.APPTAINER),
        ("", ["singularity"], Runtime.SINGULARITY),
    ],
)
def test_pyxis_comes_before_apptainer(srun_help, commands, runtime):
    assert runtime_of("image", srun_help, commands.__contains__) is runtime


def test_a_site_without_containers_is_reported():
    with pytest.raises(InputError, match=r"^spec.launch.image: 'image': needs Pyxis .* or Apptainer"):
        runtime_of("image", "", [].__contains__)


@pytest.mark.parametrize("image", ["ghcr.io/acme/train:1.4", "oras://r/i.sif", "there.sif", "./there.sif"])
def test_an_image_that_is_an_address_or_a_file_is_taken(tmp_path, image):
    (tmp_path / "there.sif").touch()
    assert checked_image(image, tmp_path) == image


@pytest.mark.parametrize("image", ["none.sif", "./none", "/none/none.sqsh"])
def test_an_image_file_that_is_not_there_is_refused(tmp_path, image):
    with pytest.raises(InputError, match=rf"^spec.launch.image: '{image}': no such file \(seen from "):
        checked_image(image, tmp_path)


@pytest.mark.parametrize("path", ["/a:b", "/a,b"])
def test_a_path_that_a_runtime_would_split_is_refused(path):
    with pytest.raises(InputError, match="a colon or a comma"):
        checked_mount(path)
