"""A pair that names what drafts is measured with that by every command, or refused by its name."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ggufspec import engines, paths
from ggufspec.console import talk
from ggufspec.domain import Chain, Drafting, Method, Pair, Program, Role
from ggufspec.errors import CatalogError, GgufspecError, NoInstallError
from ggufspec.llama.install import Install
from ggufspec.measure import Session, prepare_session
from ggufspec.modelfiles import catalog
from ggufspec.options import BenchOptions, TalkOptions, TuneOptions
from ggufspec.tuning import planning
from tests.support import fake_server, hub_client, models, shell
from tests.support.fakes import numbered_install
from tests.support.hub_server import Hub
from tests.support.shell import run

DEMO = paths.models_dir() / "demo"
TARGET = f'target = {{ path = "{DEMO}/target.gguf" }}'
DRAFTER = f'drafter = {{ path = "{DEMO}/drafter.gguf" }}'
REMOTE = 'target = { repo = "me/T-GGUF", file = "t-Q4_K_M.gguf" }'
PAIRS = {
    "lookup": (TARGET, 'method = "ngram-mod"'),
    "heads": (TARGET, 'method = "draft-mtp"'),
    "both": (TARGET, DRAFTER, 'method = "ngram-simple"'),
    "sidecar": (TARGET, DRAFTER, 'method = "draft-eagle3"'),
    "medusa": (TARGET, DRAFTER, 'method = "draft-medusa"'),
    "chain": (TARGET, DRAFTER, 'method = "ngram-mod+draft-model"'),
    "tuned": (TARGET, DRAFTER, "gamma = 15", "p_min = 0.7"),
    "alone": (TARGET,),
    "remote-heads": (REMOTE, 'method = "draft-mtp"'),
    "remote-medusa": (REMOTE, 'method = "draft-medusa"'),
    "remote-lookup": (REMOTE, 'method = "ngram-mod"'),
    "remote-pair": (REMOTE, 'drafter = { repo = "me/D-GGUF", file = "d-Q8_0.gguf" }'),
}


@pytest.fixture(autouse=True)
def llama(llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    entries = ("\n".join((f"[pairs.{name}]", *lines)) for name, lines in PAIRS.items())
    (tmp_path / "pairs.toml").write_text("\n".join(entries))
    monkeypatch.setenv("GGUFSPEC_CONFIG", str(tmp_path))
    fake_server.program(llama / "llama-server")
    return llama


def drafting(asked: BenchOptions) -> list[Drafting]:
    arms = prepare_session(asked).suite.blocks[0].arms
    return [arm.drafting for arm in arms if arm.drafting is not None]


MOD, SIMPLE = Drafting(n_max=64, method=Method.NGRAM_MOD), Drafting(n_max=48, method=Method.NGRAM_SIMPLE)
OTHER = DEMO / "drafter.gguf"


@pytest.mark.parametrize("engine", ["binary-simple", "server"])
@pytest.mark.parametrize(
    ("options", "drafts"),
    [
        ({"pair": "lookup"}, [MOD]),
        ({"pair": "both"}, [SIMPLE]),
        ({"pair": "demo"}, [Drafting(n_max=3)]),
        ({"pair": "alone"}, []),
        ({"pair": "chain"}, [Drafting(n_max=3, first=(Method.NGRAM_MOD,))]),
        # what is named comes first
        ({"pair": "lookup", "method": "ngram-simple"}, [SIMPLE]),
        ({"pair": "heads", "method": "ngram-mod"}, [MOD]),
        ({"pair": "heads", "draft_model": OTHER}, [Drafting(n_max=3)]),
        # the pair's own draft size and p-min are for its own drafter and method
        ({"pair": "tuned"}, [Drafting(n_max=15, p_min=0.7)]),
        ({"pair": "tuned", "draft": 4, "p_min": 0.0}, [Drafting(n_max=4)]),
        ({"pair": "tuned", "method": "ngram-simple"}, [SIMPLE]),
        ({"pair": "tuned", "draft_model": OTHER}, [Drafting(n_max=3)]),
    ],
    ids=str,
)
def test_a_pair_drafts_as_it_says_unless_something_else_is_named(
    options: dict[str, Any], drafts: list[Drafting], engine: str
) -> None:
    assert drafting(BenchOptions(**options, engine=engine)) == drafts


def test_a_note_says_that_the_tree_program_ignores_the_pairs_p_min() -> None:
    session = prepare_session(BenchOptions(pair="tuned", engine="binary"))
    assert drafting(BenchOptions(pair="tuned", engine="binary")) == [Drafting(n_max=15)]
    assert [note for note in session.notes if note.startswith("p-min")] == [
        "p-min: 0.7 of the pair is left out, because the engine binary has none; --engine server does"
    ]


def test_a_named_engine_that_does_not_know_the_method_is_refused() -> None:
    for engine in ("binary", "inprocess"):
        with pytest.raises(
            GgufspecError, match=r"drafts only with a draft model, not by ngram-mod"
        ) as caught:
            prepare_session(BenchOptions(pair="lookup", engine=engine))
        assert "server" in (caught.value.hint or "")


WHATIF = ("--machine", "h100", "--accept", "0.7")


@pytest.mark.parametrize(
    "words",
    [
        ("bench", "--pair"),
        ("bench", "--dry-run", "--pair"),
        ("bench", "--engine", "server", "--pair"),
        ("sweep", "--dry-run", "--pair"),
        ("tune", "--pair"),
        ("tune", "--forecast", "--pair"),
        ("chat", "--once", "Hello", "--pair"),
        ("plan", "--pair"),
        ("check",),
        ("whatif", *WHATIF, "--pair"),
    ],
    ids=" ".join,
)
def test_a_method_that_is_not_supported_is_refused_by_name(words: tuple[str, ...]) -> None:
    done = shell.here(*words, "medusa")
    assert (done.returncode, done.stdout) == (17, "")
    assert done.stderr.splitlines()[0] == (
        "error: the pair medusa drafts by draft-medusa, which ggufspec does not support yet"
    )
    assert done.stderr.splitlines()[1].startswith("hint: name its target alone with --target, or ")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("heads", "target.gguf has no layers for MTP"),
        ("sidecar", "draft-eagle3 needs a head, and no drafter is one"),
    ],
)
@pytest.mark.parametrize("engine", ["binary", "binary-simple", "server"])
def test_a_head_not_in_the_files_is_not_left_out_in_silence(name: str, problem: str, engine: str) -> None:
    with pytest.raises(GgufspecError, match=problem):
        prepare_session(BenchOptions(pair=name, engine=engine))
    with pytest.raises(GgufspecError, match=problem):
        planning.prepare_tuning(TuneOptions(pair=name, engine=engine))


def test_a_tuning_measures_the_pairs_method_or_refuses_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[BenchOptions] = []

    def noted(asked: BenchOptions, **known: bool) -> Session:
        checked.append(asked)
        return prepare_session(asked, **known)

    monkeypatch.setattr("ggufspec.measure.prepare_session", noted)
    plan = planning.prepare_tuning(TuneOptions(pair="lookup", engine="server"))
    assert "has no shared library" in str(plan.why_untraced)  # the fakes have none
    assert "ngram-mod" in (checked[0].method or ())
    for engine in ("binary", "inprocess"):
        with pytest.raises(GgufspecError, match="not by ngram-mod"):
            planning.prepare_tuning(TuneOptions(pair="lookup", engine=engine))


def test_a_chat_drafts_by_the_pairs_method(llama: Path) -> None:
    shell.done("chat", "--once", "Hello", "--pair", "lookup")
    assert "--spec-type ngram-mod" in " ".join(fake_server.starts(llama)[-1]["argv"])
    asked = talk.begin(TalkOptions(pair="lookup"))
    assert asked.spec(Role.DRAFTING).drafting == MOD
    asked.close()
    tuned = talk.begin(TalkOptions(pair="tuned"))
    assert tuned.arms[Role.DRAFTING].drafting == Drafting(n_max=15, p_min=0.7)
    tuned.close()


@pytest.mark.parametrize("name", ["lookup", "both"])
def test_a_pair_without_a_drafter_in_use_is_planned_without_one(name: str) -> None:
    done = shell.done("plan", "--pair", name)
    assert "drafter" not in done.stdout
    method = "ngram-mod" if name == "lookup" else "ngram-simple"
    assert f"note: {name} drafts with {method}, which needs no second model\n" in done.stderr


def test_questions_about_a_drafter_that_is_none_say_why() -> None:
    for words in (("check", "lookup"), ("check", "both"), ("whatif", *WHATIF, "--pair", "lookup")):
        done = shell.here(*words)
        assert (done.returncode, done.stdout) == (2, "")
        assert " drafts with ngram-" in done.stderr


def test_a_fetch_does_not_advise_a_bench_that_leaves_the_method_out(hub: Hub) -> None:
    code, out, err = run("fetch", "remote-medusa")
    assert (code, out.splitlines()[0].startswith("target")) == (0, True)
    assert err.startswith(
        "note: the pair remote-medusa drafts by draft-medusa, which ggufspec does not support yet: "
    )
    assert "ggufspec bench" not in err
    done = shell.here("bench")
    assert done.returncode == 17
    assert "the pair remote-medusa drafts by draft-medusa" in done.stderr


def test_a_fetched_pair_whose_target_drafts_is_never_measured_without_drafting(hub: Hub) -> None:
    assert run("fetch", "remote-heads")[2].endswith("\nmeasure it: ggufspec bench\n")
    for engine in ("binary", "binary-simple", "server"):
        done = shell.here("bench", "--engine", engine)
        assert (done.returncode, done.stdout) == (1, "")
        assert "error: " in done.stderr
        assert "MTP" in done.stderr or "draft-mtp" in done.stderr


def test_a_fetch_advises_a_bench_that_measures_what_drafts(hub: Hub) -> None:
    assert run("fetch", "remote-pair")[2].endswith("\nmeasure it: ggufspec bench\n")
    assert run("fetch", "remote-lookup")[2].endswith("\nmeasure it: ggufspec bench\n")
    assert drafting(BenchOptions()) == [MOD]
    _, _, err = run("fetch", "--target", hub_client.TARGET)
    assert "note: this target has no drafter; find one: ggufspec suggest me/T-GGUF/" in err
    assert "ggufspec bench" not in err


def test_the_list_of_pairs_says_what_is_not_supported() -> None:
    done = shell.here("pairs")
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert "draft-mtp " in lines["qwen3.6-27b-mtp"]
    assert "draft-medusa (not supported yet)" in lines["medusa"]
    assert "ngram-mod+draft-model" in lines["chain"]
    assert "ngram-mod " in lines["gpt-oss-20b-ngram"]
    assert "ngram-simple" in lines["both"]
    assert "method     draft-medusa (not supported yet)\n" in shell.here("pairs", "medusa").stdout
    assert "method     draft-mtp\n" in shell.here("pairs", "heads").stdout


def _files(way: Chain, folder: Path, *, has_drafter: bool) -> tuple[Path, Path | None]:
    """Write a target and, where there is one, a drafter, so small that their headers decide."""
    by_mtp = way.method is Method.DRAFT_MTP
    built = models.with_mtp(context=4096) if by_mtp and not has_drafter else models.llama(context=4096)
    target = models.write_model(folder / "target.gguf", *built)
    if not has_drafter:
        return target, None
    if by_mtp:
        drafter = models.with_mtp(alone=True, context=4096)
    elif way.method is Method.DRAFT_DFLASH:
        drafter = models.dflash()
    else:
        drafter = models.eagle3() if way.method.is_head else models.llama(n_layers=1, context=4096)
    return target, models.write_model(folder / "drafter.gguf", *drafter)


def _use_install(install: Install, monkeypatch: pytest.MonkeyPatch) -> Install:
    monkeypatch.setattr("ggufspec.llama.install.installs.find_install", lambda named, **_: install)
    return install


RECORDED = ("0.2.63", "0.2.90", "0.3.2", "0.3.16", "0.3.20", "0.3.23", "0.3.24", "0.3.36")
FIRST = {  # the first recorded build with a program that drafts so
    "draft-model": "0.2.63",
    "ngram-mod": "0.3.20",
    "draft-mtp": "0.3.24",
    "draft-eagle3": "0.3.36",
    "draft-dflash": "0.3.36",
}


def _kind(name: str) -> tuple[Chain | None, bool]:
    """Return how a pair of the catalogue drafts, and whether another model drafts."""
    pair = catalog.find_pair(name)
    return catalog.drafting_method(pair), pair.draft is not None


FIRST_OF_KIND = {_kind(name): name for name in reversed([*catalog.load_catalogue()])}


@pytest.mark.parametrize("name", [*catalog.load_catalogue()])
def test_every_listed_pair_drafts(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pair as if it was fetched: with files of its shape, it drafts by its method or is refused.

    The first pair of each kind with every build and engine, the others with today's and the one they take.
    """
    pair = catalog.find_pair(name)
    way = catalog.drafting_method(pair)
    target, drafter = _files(way, tmp_path, has_drafter=pair.draft is not None)

    def resolve(listed: Pair, *, offline: bool) -> Pair:
        draft = listed.draft and replace(listed.draft, path=drafter, repo=None)
        return replace(listed, target=replace(listed.target, path=target, repo=None), draft=draft)

    monkeypatch.setattr("ggufspec.modelfiles.hub.resolve", resolve)
    is_first = name in FIRST_OF_KIND.values()
    named = ("binary", "binary-simple", "server", "inprocess") if is_first else ()
    for build, engine in itertools.product(RECORDED if is_first else RECORDED[-1:], (None, *named)):
        install = _use_install(numbered_install(build), monkeypatch)
        is_able = RECORDED.index(build) >= RECORDED.index(FIRST[str(way)])
        session = _prepare(BenchOptions(pair=name, engine=engine, prompt=("Hello",), chat=False))
        if isinstance(session, GgufspecError):
            assert "\n" not in session.message, (build, engine)
            assert session.hint, (build, engine)
            assert engine is not None or not is_able, (build, engine)
            continue
        arms = [arm for block in session.suite.blocks for arm in block.arms if arm.drafting]
        assert {arm.drafting.chain for arm in arms if arm.drafting} == {way}, (build, engine)
        assert (engine or session.engine.name, is_able) == (session.engine.name, True)
        words = [word for arm in arms for word in session.engine.argv(arm)]
        assert str(drafter or way.method.value) in words
        assert str(install.executable(engines.ENGINES[session.engine.name]).path) in words


def _prepare(asked: BenchOptions) -> Session | GgufspecError:
    try:
        return prepare_session(asked)
    except GgufspecError as error:
        return error


@pytest.mark.parametrize(
    ("name", "method"),
    [("demo-eagle3", "draft-eagle3"), ("demo-mtp", "draft-mtp"), ("demo-dflash", "draft-dflash")],
)
def test_the_embedded_heads_draft_for_their_targets_without_a_network(name: str, method: str) -> None:
    session = prepare_session(BenchOptions(pair=name, offline=True))
    drafting_arms = [arm for arm in session.suite.blocks[0].arms if arm.drafting]
    assert [str(arm.drafting.chain) for arm in drafting_arms if arm.drafting] == [method]
    assert session.engine.name == "binary-simple"
    assert session.notes[0] == (
        f"engine: binary-simple, because llama-speculative drafts only with a draft model, not by {method}"
    )
    assert len(session.suite.prompts) == 8
    assert "story-lantern" in {prompt.id for prompt in session.suite.prompts}
    done = shell.here("bench", "--pair", name, "--dry-run", "--offline")
    assert done.stderr.startswith("engine: binary-simple, because ")
    assert f"--spec-type {method}" in done.stdout


def test_a_method_no_build_knows_is_refused_by_the_nearest_program(monkeypatch: pytest.MonkeyPatch) -> None:
    _use_install(numbered_install("0.3.16"), monkeypatch)
    with pytest.raises(GgufspecError, match=r"this llama-speculative-simple cannot draft by draft-eagle3"):
        prepare_session(BenchOptions(pair="demo-eagle3"))
    _use_install(numbered_install("0.2.63"), monkeypatch)
    with pytest.raises(GgufspecError, match=r"this server cannot draft by draft-eagle3") as caught:
        prepare_session(BenchOptions(pair="demo-eagle3"))
    assert "b9606 and newer" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("missing", "pair", "engine", "reason"),
    [
        ((), "demo", "binary", ""),
        ((Program.TREE, Program.SIMPLE), "demo", "server", "has no llama-speculative"),
        ((Program.PLAIN, Program.TREE, Program.SIMPLE), "demo", "server", "has no llama-completion"),
        ((Program.PLAIN, Program.TREE, Program.SIMPLE), "demo-mtp", "server", "has no llama-completion"),
        ((Program.SIMPLE,), "demo-mtp", "server", "not by draft-mtp"),
        ((Program.TREE, Program.SIMPLE, Program.SERVER), "demo", "inprocess", "has no llama-speculative"),
    ],
)
def test_the_default_engine_is_the_first_one_whose_programs_are_there(
    missing: tuple[Program, ...], pair: str, engine: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install = numbered_install("0.3.36")
    kept = {program: there for program, there in install.programs.items() if program not in missing}
    _use_install(replace(install, programs=kept), monkeypatch)
    monkeypatch.setattr("ggufspec.engines.check_library", lambda install: None)
    session = prepare_session(BenchOptions(pair=pair))
    assert session.engine.name == engine
    first = session.notes[0]
    if not reason:
        assert first.startswith("pair: ")
        return
    assert first.startswith(f"engine: {engine}, because ")
    assert reason in first
    limits = {"server": "; it measures memory for a process, not for a run", "inprocess": "; it drafts only"}
    assert limits[engine] in first
    with pytest.raises(GgufspecError):
        prepare_session(BenchOptions(pair=pair, engine="binary"))


def test_where_no_engine_can_measure_the_first_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    install = numbered_install("0.3.36")
    plain = {Program.PLAIN: install.programs[Program.PLAIN]}
    _use_install(replace(install, programs=plain), monkeypatch)
    with pytest.raises(NoInstallError, match=r"(?m)has no llama-speculative$"):
        prepare_session(BenchOptions(pair="demo"))
    with pytest.raises(NoInstallError, match=r"(?m)^no program of .* drafts by draft-mtp$"):
        prepare_session(BenchOptions(pair="demo-mtp"))


def test_another_pair_of_the_same_name_is_not_the_catalogues(tmp_path: Path) -> None:
    pair = catalog.find_pair("heads")
    model = pair.target.__class__(filename="other.gguf", path=tmp_path / "other.gguf")
    assert catalog.drafting_method(pair.__class__(name="heads", target=model)) is None


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ('method = "draft-model"', "has no drafter, but the method draft-model"),
        ('drafter = { path = "d" }\nmethod = "none"', "has a drafter, but the method none"),
    ],
)
def test_an_entry_that_contradicts_itself_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str, problem: str
) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    (folder / "pairs.toml").write_text(f'[pairs.x]\ntarget = {{ path = "t" }}\n{entry}\n')
    monkeypatch.setenv("GGUFSPEC_CONFIG", str(folder))
    with pytest.raises(CatalogError, match=problem):
        catalog.find_pair("x")
