"""docs/install.md, Slurm: the archive with its own Python, where there is neither Python nor a C library."""

import pytest

pytestmark = [pytest.mark.install, pytest.mark.slow]
UNPACK = "tar -xzf rightsizer_*_linux_*.tar.gz --strip-components=1 -C"
PLAN = "rightsizer plan --model gpt2 --tokens 1B --gpu A100 --gpus 8"
DAEMON = "ExecStart=/opt/rightsizer/bin/rightsizer slurm daemon --monitor --config /etc/slurm/rightsizer.conf"


def test_the_guide_works_on_a_machine_that_has_only_busybox(bare, blocks):
    _, archive, _, begin, upgrade, _ = blocks("Slurm")
    nothing = "for each in /lib/*/libc.so* /usr/bin/python*; do test ! -e $each; done"
    unit = "grep ExecStart=/ /etc/systemd/system/rightsizer-slurm.service"
    user = f"export PATH=$PATH:/opt/rightsizer/bin\n{PLAN}"
    done = bare("\n".join((nothing, archive, unit, begin, user, upgrade)))
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert DAEMON in done.stdout
    assert "8 A100" in done.stdout
    assert "unchanged /etc/slurm/job_submit.lua" in done.stdout


def test_the_folder_may_be_moved_linked_and_read_only(bare):
    unpack = f"mkdir '/tmp/a b'; {UNPACK} '/tmp/a b'; '/tmp/a b/bin/rightsizer' --version"
    moved = "mv '/tmp/a b' /tmp/c; mkdir /ro; mount -o bind,ro /tmp/c /ro; ln -s /ro/bin/rightsizer /bin"
    done = bare(f"{unpack}; {moved}; {PLAN}; /ro/bin/python3 -c 'import sys; print(sys.executable)'")
    assert done.returncode == 0, done.stderr
    assert "8 A100" in done.stdout
    assert done.stdout.endswith("\n/ro/usr/bin/python3\n")


SITE = {"LD_LIBRARY_PATH": "/site", "PYTHONPATH": "/site", "PYTHONHOME": "/site"}
CHILD = "import subprocess; subprocess.run(['env'], check=True)"
AUTHORITIES = """\
import ssl
print(len(ssl.create_default_context().get_ca_certs()), ssl.get_default_verify_paths().cafile)
"""
PACKED = "/opt/usr/local/lib/python3.11/dist-packages/certifi/cacert.pem"


def test_a_child_has_the_site_s_environment_and_https_the_machine_s_authorities_else_its_own(bare):
    export = " ".join(f"{name}={value}" for name, value in SITE.items())
    ask = f"/opt/bin/python3 -c '{AUTHORITIES}'"
    place = f"mkdir -p /etc/pki/tls; cp {PACKED} /etc/pki/tls/cert.pem"
    done = bare(
        f'mkdir /opt; {UNPACK} /opt; export {export}; /opt/bin/python3 -c "{CHILD}"\n{ask}\n{place}\n{ask}'
    )
    assert done.returncode == 0, done.stderr
    *child, own, machine = done.stdout.splitlines()
    assert {f"{name}={value}" for name, value in SITE.items()} <= set(child)
    assert own.endswith(f" {PACKED}")
    assert int(own.split()[0]) > 50
    assert machine == f"{own.split()[0]} /etc/pki/tls/cert.pem"
