"""The zip of a user's code: what goes in, what stays out, and what is refused by name."""

import io
import os
import stat
import time
import zipfile

import pytest

from ffdl.engines.archive import CodeError, Ignore, pack_code


def names(data):
    return zipfile.ZipFile(io.BytesIO(data)).namelist()


def make(folder, *files):
    for file in files:
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file)
    return folder


def test_the_same_files_give_the_same_bytes(tmp_path):
    """Results name the code by its digest: neither dates nor the order of the folder may change it."""
    first = make(tmp_path / "a", "train.py", "lib/x.py", "lib/y.py")
    second = make(tmp_path / "b", "lib/y.py", "lib/x.py", "train.py")
    os.utime(second / "train.py", (time.time() - 1e6,) * 2)
    assert pack_code(first) == pack_code(second)
    assert names(pack_code(first)) == ["lib/x.py", "lib/y.py", "train.py"]
    (second / "train.py").write_text("other")
    assert pack_code(first) != pack_code(second)


def test_modes_contents_and_empty_folders_arrive(tmp_path):
    """`./run.sh` in the command needs its x bit, and a script may expect its empty output folder."""
    folder = make(tmp_path, "run.sh", "data.bin")
    (folder / "run.sh").chmod(0o750)
    (folder / "data.bin").write_bytes(bytes(range(256)))
    (folder / "out").mkdir()
    archive = zipfile.ZipFile(io.BytesIO(pack_code(folder)))
    assert stat.S_IMODE(archive.getinfo("run.sh").external_attr >> 16) == 0o750
    assert archive.read("data.bin") == bytes(range(256))
    assert archive.getinfo("out/").is_dir()


@pytest.mark.parametrize("name", ["with space", "ünï", "-dash", "x" * 200, "new\nline", "日本.py"])
def test_any_name_travels(tmp_path, name):
    """Users' files have the names they have."""
    assert names(pack_code(make(tmp_path, name))) == [name]


def test_a_link_inside_the_folder_is_stored_as_what_it_points_to(tmp_path):
    """The zip must not depend on a link's target being at the same place in a pod."""
    folder = make(tmp_path, "lib/real.py")
    (folder / "link.py").symlink_to("lib/real.py")
    (folder / "also").symlink_to(folder / "lib")
    archive = zipfile.ZipFile(io.BytesIO(pack_code(folder)))
    assert archive.namelist() == ["also/real.py", "lib/real.py", "link.py"]
    assert archive.read("link.py") == archive.read("also/real.py") == b"lib/real.py"
    assert not any(stat.S_ISLNK(entry.external_attr >> 16) for entry in archive.infolist())


@pytest.mark.parametrize(
    ("target", "words"),
    [("/etc/hostname", "out of"), ("gone", "to nothing"), (".", "it lies in"), ("loop", "to nothing")],
)
def test_other_links_are_refused_by_name(tmp_path, target, words):
    """A secret that a link points to must not travel, a cycle must end, and the user learns which link it is."""
    folder = make(tmp_path / "code", "sub/train.py")
    (folder / "sub" / "loop").symlink_to(target)
    with pytest.raises(CodeError, match=words) as caught:
        pack_code(folder)
    assert "'sub/loop'" in str(caught.value)
    (folder / ".ffdlignore").write_text("loop\n")
    assert names(pack_code(folder)) == ["sub/train.py"]


def test_a_folder_beside_with_the_same_beginning_is_outside(tmp_path):
    """`code-secret` begins like `code`: comparing texts would take it for a part."""
    make(tmp_path / "code-secret", "key")
    (make(tmp_path / "code", "train.py") / "key").symlink_to(tmp_path / "code-secret" / "key")
    with pytest.raises(CodeError, match="out of"):
        pack_code(tmp_path / "code")


def test_what_is_no_file_is_refused_by_name(tmp_path):
    """Reading a pipe would wait for ever."""
    os.mkfifo(make(tmp_path, "train.py") / "pipe")
    with pytest.raises(CodeError, match=r"'pipe' is neither a file nor a folder; list it in .ffdlignore"):
        pack_code(tmp_path)


def test_a_name_that_is_not_utf8_is_refused_by_name(tmp_path):
    """A zip can't hold it; silence would lose the file."""
    with open(os.path.join(os.fsencode(tmp_path), b"\xff.py"), "w"):
        pass
    with pytest.raises(CodeError, match="not UTF-8"):
        pack_code(tmp_path)


def test_what_never_belongs_to_code_stays_out(tmp_path):
    """A repository's history and caches are larger than the code and change its digest."""
    folder = make(
        tmp_path, "train.py", ".git/HEAD", "lib/__pycache__/x.pyc", ".venv/bin/python", ".DS_Store", ".ffdlignore"
    )
    (folder / ".ffdlignore").write_text("# nothing\n")
    assert names(pack_code(folder)) == ["train.py"]


def test_what_is_ignored_by_default_can_be_asked_for(tmp_path):
    """`!` takes a default back."""
    folder = make(tmp_path, ".venv/x")
    (folder / ".ffdlignore").write_text("!.venv/\n")
    assert names(pack_code(folder)) == [".venv/x"]


@pytest.mark.parametrize(
    ("patterns", "ignored", "kept"),
    [
        (["data"], ["data", "a/data"], ["data2", "mydata", "dat"]),
        (["*.pt"], ["m.pt", "a/b/m.pt", ".pt"], ["m.ptx", "pt"]),
        (["/top.py"], ["top.py"], ["a/top.py"]),
        (["a/b"], ["a/b"], ["x/a/b", "a/x/b"]),
        (["a/*.py"], ["a/x.py"], ["a/b/x.py", "b/a/x.py"]),
        (["**/x"], ["x", "a/x", "a/b/x"], ["ax"]),
        (["a/**"], ["a/x", "a/b/x"], ["a", "b/a/x"]),
        (["a/**/x"], ["a/x", "a/b/c/x"], ["x", "ax"]),
        (["?.py"], ["a.py"], ["ab.py", ".py"]),
        (["[ab].py", "[!x-z]1"], ["a.py", "b.py", "a1"], ["c.py", "x1", "y1"]),
        (["*.log", "!keep.log"], ["x.log"], ["keep.log", "a/keep.log"]),
        (["!keep.log", "*.log"], ["keep.log"], []),
        (["# x", "", "   ", "\\#y", "\\!z"], ["#y", "!z"], ["# x", "x", "y", "z"]),
        (["x  ", "y\\ "], ["x", "y "], ["x  ", "y"]),
        (["a.b+(c)"], ["a.b+(c)"], ["aXb+(c)"]),
        (["[", "a["], ["[", "a["], ["b"]),
        (["/", "!"], [], ["a", "!"]),
    ],
)
def test_patterns_mean_what_they_mean_to_git(patterns, ignored, kept):
    """Users bring their .gitignore; a pattern that means something else would send or lose their data."""
    ignore = Ignore(patterns)
    assert [path for path in ignored if not ignore(path, False)] == []
    assert [path for path in kept if ignore(path, False)] == []


def test_a_pattern_with_a_slash_at_its_end_means_folders(tmp_path):
    """`out/` must not drop a file called out."""
    folder = make(tmp_path, "a/out/x", "out")
    (folder / ".ffdlignore").write_text("out/\n")
    assert names(pack_code(folder)) == ["out"]


def test_a_zip_is_sent_as_it_is(tmp_path):
    """The user's zip is the submitted code, byte for byte."""
    data = pack_code(make(tmp_path / "code", "train.py"))
    (tmp_path / "model").write_bytes(data)
    assert pack_code(tmp_path / "model") == data


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x"])
def test_a_zip_that_leads_out_of_its_folder_is_refused(tmp_path, name):
    """It would be unpacked over the pod's own files."""
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr(name, "x")
    with pytest.raises(CodeError, match="leads out of the folder"):
        pack_code(tmp_path / "x.zip")


def test_what_is_no_zip_or_not_there_is_said_so(tmp_path):
    """A wrong second argument is the most common mistake."""
    (tmp_path / "x.zip").write_text("no zip")
    with pytest.raises(CodeError, match=r"x\.zip: not a zip file"):
        pack_code(tmp_path / "x.zip")
    with pytest.raises(CodeError, match="nowhere: no such folder or zip file"):
        pack_code(tmp_path / "nowhere")


def test_the_wrong_folder_is_noticed_before_it_fills_the_memory(tmp_path, monkeypatch):
    """The default is the manifest's folder, which may hold the data, too."""
    monkeypatch.setattr("ffdl.engines.archive.MOST", 1000)
    (make(tmp_path, "train.py") / "data").write_bytes(bytes(1001))
    with pytest.raises(CodeError, match=r"is it the right folder\?.*\.ffdlignore"):
        pack_code(tmp_path)


def test_the_manifest_among_the_code_keeps_its_credentials_to_itself(tmp_path):
    """Most manifests lie beside the code, which every learner and everyone who may read the results can read."""
    text = b"name: x\ndata_stores:\n- connection: {user_name: u, password: hush-hush}\n"
    (tmp_path / "manifest.yml").write_bytes(text)
    (tmp_path / "train.py").write_text("pass\n")
    archive = zipfile.ZipFile(io.BytesIO(pack_code(tmp_path, text)))
    assert b"hush-hush" not in archive.read("manifest.yml")
    assert b"user_name: u" in archive.read("manifest.yml")
    assert archive.read("train.py") == b"pass\n"
