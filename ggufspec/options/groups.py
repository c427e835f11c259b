"""Options that several commands have, by section of the help."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from ggufspec import choices
from ggufspec.choices import Experts, Layers, Reasoning
from ggufspec.errors import GgufspecError
from ggufspec.options import kinds
from ggufspec.options.fields import Options, only, option
from ggufspec.options.kinds import Axis, Count, FilePath, Flag, Number, Word

if TYPE_CHECKING:
    from pathlib import Path

    from ggufspec.domain import (
        Asking,
        CacheTypes,
        ModelFile,
        NgramSettings,
        Offload,
        Prompt,
        Runtime,
        ServiceLevel,
    )

_F16 = "f16"  # llama.cpp's default of each cache, in every era
_TYPES = Axis("types", number=None, words=choices.KV_TYPES, placeholder="TYPE")
_SPLIT_MODES = tuple(choices.SplitMode)
_LAYERS = Axis("layers", words=("all", "auto"))
_EXPERTS = Axis("layers", words=("all",))

TARGET = "--model -hf -hfr --hf-repo -mu --model-url"
DRAFT_MODEL = "--model-draft --spec-draft-model -hfd -hfrd --hf-repo-draft --spec-draft-hf"
"""llama.cpp's spellings of options that several classes declare."""

FORMAT_ELSEWHERE = "In llama.cpp, -o is a file to write, except in llama-bench; here that is --out."
REPEATS_ELSEWHERE = "In llama.cpp, -r is --reverse-prompt, a text that ends an answer, except in llama-bench."
VERSION_ELSEWHERE = "In llama.cpp, --version prints its version."
_HOST_ELSEWHERE = "In llama.cpp, --host is the address that a server listens on."


class TargetArgument(Options):
    """The target that stands first, or behind one of its other names."""

    target: str = option(
        "target",
        "",
        hidden=f"-m --target {TARGET}",
        required=True,
        metavar="TARGET",
        complete="models",
    )


class HubOptions(Options, section="Models"):
    """How the Hugging Face Hub is asked."""

    offline: bool = option(
        "--offline",
        False,
        setting="true",
        replaced_by=("url", "url_drafting"),
        help="Use only cached files; do not connect to the Hub.",
    )
    token: str | None = option(
        "--token",
        hidden="--hf-token -hft",
        secret=True,
        help="Access token for the Hub.",
        shown="the stored login or HF_TOKEN",
    )


class ReferenceOptions(Options, section="Models"):
    """A target and a drafter; texts are read by ``hub.parse_reference``."""

    target: tuple[str | Path | ModelFile, ...] | None = option(
        "--target -m",
        hidden=TARGET,
        positional=True,
        axis=True,
        metavar="REF",
        complete="models",
        common=True,
        help="Target: a file, user/repo:QUANT, or half of a pair (demo:target).",
    )
    draft_model: tuple[str | Path | ModelFile, ...] | None = option(
        "--draft-model -md",
        hidden=DRAFT_MODEL,
        axis=True,
        metavar="REF",
        complete="models",
        common=True,
        help="Drafter, in the same forms; auto is the head beside the target.",
    )


class PairOption(Options, section="Models"):
    """A pair of the catalogue."""

    pair: str | None = option(
        "--pair",
        metavar="NAME",
        complete="pairs",
        common=True,
        setting="llama-3-70b",
        replaced_by=("model", "target", "largest", "tuned", "url", "url_drafting"),
        help="Pair from the catalogue.",
        shown="the pair fetched last, else the embedded one",
    )


class ModelOptions(PairOption, ReferenceOptions, HubOptions):
    """The models that a command uses."""


class PastedOptions(Options, section="Models"):
    """A command of llama.cpp that is measured; options beside it win over its own."""

    from_text: str | None = option(
        "--from",
        metavar="FILE",
        python=False,
        help="Measure the llama.cpp command in this text, or - for standard input: a shell script, systemd "
        "unit, Compose or llama-swap file, or a line of ps. FILE#NAME chooses among several. The command "
        "itself may also follow --.",
    )


class FoldersOption(Options):
    """Where to look for models."""

    folders: tuple[Path, ...] = option(
        "folders",
        (),
        kind=FilePath("FOLDER"),
        repeated=True,
        metavar="[FOLDER]...",
        setting="~/models",
        help="Folders in which `ggufspec models` looks for models, too, with colons between them.",
        shown="none",
    )


class YesOption(Options, section="General"):
    """Consent to a download."""

    yes: bool = option("--yes -y", False, python=False, help="Download more than 10 GB without confirmation.")


class MethodOption(Options, section="Drafting"):
    """What drafts."""

    method: tuple[str, ...] | None = option(
        "--method",
        kind=kinds.Methods(),
        written={"--spec-type": kinds.SpecTypes()},
        constant={"--spec-default": (choices.Method.NGRAM_MOD.value, "")},
        common=True,
        help=f"Drafting method: {', '.join(choices.Method)}; or a chain, such as ngram-mod+draft-mtp.",
        shown="the pair's own",
    )


class DraftOption(Options, section="Drafting"):
    """How much is drafted."""

    draft: tuple[int, ...] = option(
        "--draft",
        (),
        hidden="--draft-max --draft-n --spec-draft-n-max",
        kind=Axis("draft sizes", least=1, most=64),
        metavar="SIZES",
        common=True,
        help="Draft sizes γ in tokens: 3 or 3,5,8 or 1-8.",
        shown="depends on the method",
    )


class DraftingOptions(MethodOption, DraftOption, section="Drafting"):
    """What drafts, and how much."""

    ngram: tuple[NgramSettings, ...] | None = option(
        "--ngram",
        kind=kinds.NgramList(),
        written={
            **{
                f"--spec-ngram{method}-{setting}": kinds.NgramSetting(setting)
                for method in ("-simple", "-map-k", "-map-k4v", "")
                for setting in ("size-n", "size-m", "min-hits")
            },
            "--spec-ngram-mod-n-match": kinds.NgramSetting("size-n"),
            "--spec-ngram-mod-n-max": kinds.NgramSetting("size-m"),
            "--spec-ngram-mod-n-min": kinds.NgramSetting("n-min"),
        },
        axis=True,
        help="Settings of n-gram methods: size-n=12 (tokens that recur), size-m=48 (longest draft, γ outside "
        "a chain), min-hits=1, n-min=0. Repeat it for several.",
        shown="the method's",
    )


class DraftChoiceOptions(Options, section="Drafting"):
    """When a draft ends early, and how it is chosen."""

    p_min: tuple[float, ...] | None = option(
        "--p-min",
        hidden="--draft-p-min --spec-draft-p-min",
        kind=Axis("probabilities", number=float, most=1),
        metavar="P",
        help="End a draft at a token below this probability.",
    )
    draft_sampling: tuple[str, ...] | None = option(
        "--draft-sampling",
        hidden="--spec-draft-sampling",
        kind=Axis("ways", number=None, words=tuple(choices.DraftSampling)),
        metavar="|".join(choices.DraftSampling),
        help="Draft the likeliest tokens, or sample them and verify by rejection: llama-server from b11368 "
        "on, with a draft model or MTP, above --temp 0.",
        shown="llama.cpp's, greedy",
    )

    @property
    def draft_samplings(self) -> tuple[choices.DraftSampling | None, ...]:
        """How drafts are chosen; None for llama.cpp's own way.

        Raises:
            GgufspecError: in another way than there is.
        """
        try:
            return tuple(map(choices.DraftSampling, self.draft_sampling or ())) or (None,)
        except ValueError as error:
            raise GgufspecError(
                f"draft_sampling: {error}", f"say {' or '.join(choices.DraftSampling)}"
            ) from error


class LayerOptions(Options, section="Placement"):
    """How many layers of each model are on the GPU."""

    ngl: tuple[Layers, ...] = option(
        "--ngl -ngl",
        ("auto",),
        hidden="--gpu-layers --n-gpu-layers",
        kind=_LAYERS,
        common=True,
        help="Target layers on the GPU: a number, all or auto.",
    )
    ngld: tuple[Layers, ...] = option(
        "--ngld -ngld",
        ("auto",),
        hidden="--gpu-layers-draft --n-gpu-layers-draft --spec-draft-ngl",
        kind=_LAYERS,
        help="Drafter layers on the GPU: a number, all or auto.",
    )


class ContextOption(Options, section="Placement"):
    """The context of each request."""

    ctx: int | None = option(
        "--ctx -c", hidden="--ctx-size", kind=Count(16), help="Context size in tokens.", shown="as needed"
    )


class ThreadsOption(Options, section="Placement"):
    """Threads of the processor."""

    threads: tuple[int, ...] | None = option(
        "--threads -t",
        kind=Axis("threads", least=1, most=1024),
        metavar="N",
        common=True,
        setting="8",
        replaced_by=("tuned", "url", "url_drafting"),
        help="CPU threads.",
        shown="all physical cores",
    )


class SplitOptions(Options, section="GPUs"):
    """What changes how much memory each device needs, besides the numbers of layers."""

    tensor_split: tuple[tuple[float, ...], ...] | None = option(
        "--tensor-split -ts",
        kind=kinds.Splits(),
        axis=True,
        help="Proportions of the model on the GPUs, such as 3,1; several as 3/1,1/1.",
    )
    cpu_moe: tuple[Experts, ...] | None = option(
        "--n-cpu-moe -ncmoe",
        kind=_EXPERTS,
        constant={"--cpu-moe -cmoe": (("all",), "Keep all experts of the target on the CPU.")},
        help="Keep the experts of the target's first N layers on the CPU.",
    )
    draft_cpu_moe: tuple[Experts, ...] | None = option(
        "--n-cpu-moe-draft -ncmoed",
        kind=_EXPERTS,
        hidden="--spec-draft-n-cpu-moe --spec-draft-ncmoe",
        constant={
            "--cpu-moe-draft -cmoed": (("all",), "Keep all experts of the drafter on the CPU."),
            "--spec-draft-cpu-moe": (("all",), ""),
        },
        help="Keep the experts of the drafter's first N layers on the CPU.",
    )


class RpcOption(Options, section="GPUs"):
    """Workers on other machines."""

    rpc: tuple[str, ...] | None = option(
        "--rpc",
        kind=kinds.WorkerList(),
        axis=True,
        help="Workers that lend their devices over the network (`ggufspec fleet worker`); the drafter stays "
        "here unless --device-draft says otherwise. Repeat it to compare, such as with none.",
    )

    @property
    def rpcs(self) -> tuple[tuple[str, ...], ...]:
        """The addresses of the workers of each value of the axis; () is this machine alone.

        Raises:
            GgufspecError: a value is not a list of addresses.
        """
        return tuple(dict.fromkeys(map(kinds.parse_workers, self.rpc or (kinds.NO_WORKERS,))))


class DeviceOption(Options, section="GPUs"):
    """Devices of this machine."""

    devices: tuple[str, ...] | None = option(
        "--device -dev", kind=kinds.DeviceList(), help="GPUs to use, such as CUDA0,CUDA1; or none."
    )


class DeviceOptions(DeviceOption, SplitOptions, RpcOption, section="GPUs"):
    """On which devices the models are, besides the numbers of layers; None is llama.cpp's default."""

    fit: str | None = option(
        "--fit -fit",
        kind=Word("on", "off"),
        help="Let llama.cpp offload less than requested so that the models fit.",
    )
    draft_devices: tuple[str, ...] | None = option(
        "--device-draft -devd",
        hidden="--spec-draft-device",
        kind=kinds.DeviceList(),
        help="GPUs for the drafter.",
        shown="as --device",
    )
    split_mode: tuple[str, ...] | None = option(
        "--split-mode -sm",
        kind=Axis(
            "modes",
            number=None,
            words=tuple(choices.SplitMode),
            placeholder=Word(*choices.SplitMode).placeholder,
        ),
        help="How to split the model across GPUs.",
    )
    main_gpu: int | None = option("--main-gpu -mg", kind=Count(0), help="GPU for --split-mode none or row.")

    @property
    def split_modes(self) -> tuple[choices.SplitMode, ...]:
        """How to split models over GPUs."""
        return tuple(map(choices.SplitMode, self.split_mode or ()))

    @property
    def offload(self) -> Offload:
        """The placement, with the first value of each axis, and llama.cpp's numbers of layers."""
        from ggufspec.domain import ModelRun, Offload

        return Offload(
            fit=None if self.fit is None else self.fit == "on",
            target=ModelRun(devices=self.devices or (), cpu_moe=only(self.cpu_moe)),
            drafter=ModelRun(devices=self.draft_devices or (), cpu_moe=only(self.draft_cpu_moe)),
            tensor_split=only(self.tensor_split) or (),
            split_mode=only(self.split_modes),
            main_gpu=self.main_gpu,
        )


class CacheTypeOptions(Options, section="Cache and batches"):
    """Types of the KV caches."""

    kv_type: tuple[str, ...] | None = option(
        "--kv-type", kind=_TYPES, help="Type of both KV caches, such as f16 or q8_0.", shown="f16"
    )
    cache_type_k: tuple[str, ...] | None = option(
        "--cache-type-k -ctk", kind=_TYPES, help="Type of the K cache.", shown="--kv-type"
    )
    cache_type_v: tuple[str, ...] | None = option(
        "--cache-type-v -ctv", kind=_TYPES, help="Type of the V cache.", shown="--kv-type"
    )
    kv_type_draft: tuple[str, ...] | None = option(
        "--kv-type-draft", kind=_TYPES, help="Type of both KV caches of the drafter.", shown="the target's"
    )
    cache_type_k_draft: tuple[str, ...] | None = option(
        "--cache-type-k-draft -ctkd",
        hidden="--spec-draft-type-k",
        kind=_TYPES,
        help="Type of the drafter's K cache.",
        shown="--kv-type-draft",
    )
    cache_type_v_draft: tuple[str, ...] | None = option(
        "--cache-type-v-draft -ctvd",
        hidden="--spec-draft-type-v",
        kind=_TYPES,
        help="Type of the drafter's V cache.",
        shown="--kv-type-draft",
    )


class UbatchOption(Options, section="Cache and batches"):
    """How much is evaluated at once."""

    ubatch: tuple[int, ...] | None = option(
        "--ubatch-size -ub",
        kind=Axis("tokens", least=1, most=65536),
        help="Physical batch size in tokens.",
        shown="llama.cpp's",
    )


class CacheOptions(CacheTypeOptions, UbatchOption, section="Cache and batches"):
    """Caches, batches and attention."""

    flash_attn: tuple[str, ...] | None = option(
        "--flash-attn -fa",
        kind=kinds.Switches("auto"),
        alone="on",
        metavar="on|off|auto",
        help="Flash attention.",
        shown="auto; on for a quantised cache",
    )
    batch: tuple[int, ...] | None = option(
        "--batch-size -b",
        kind=Axis("tokens", least=1, most=65536),
        help="Logical batch size in tokens.",
        shown="llama.cpp's",
    )
    draft_backend_sampling: tuple[str, ...] | None = option(
        "--draft-backend-sampling",
        section="Drafting",
        kind=kinds.Switches(),
        constant={
            "--spec-draft-backend-sampling": ("on", ""),
            "--no-spec-draft-backend-sampling": ("off", ""),
        },
        metavar="on|off",
        help="Sample drafts of a head where it is evaluated.",
        shown="llama.cpp's",
    )


class ProcessorOptions(Options, section="Processor"):
    """How the processor computes, and where weights are."""

    override_tensor: tuple[str, ...] | None = option(
        "--override-tensor -ot",
        axis=True,
        metavar="PATTERN=BUFFER,…",
        help="Buffers for tensors whose names match a pattern, such as exps=CPU.",
    )
    mlock: bool = option("--mlock", False, help="Keep the models in RAM.")
    no_mmap: bool = option(
        "--no-mmap",
        False,
        constant={"--mmap": (False, "")},
        help="Load the models instead of mapping their files.",
    )
    numa: tuple[str, ...] | None = option(
        "--numa",
        kind=Axis("types", number=None, words=("distribute", "isolate", "numactl")),
        metavar="TYPE",
        help="How to use NUMA nodes: distribute, isolate or numactl.",
    )
    cpu_mask: tuple[str, ...] | None = option(
        "--cpu-mask -C", axis=True, metavar="MASK", help="CPUs to run on, as a hexadecimal mask."
    )
    prio: tuple[int, ...] | None = option(
        "--prio",
        kind=Axis("priorities", least=-1, most=3),
        metavar="N",
        help="Priority of threads: -1 low, 0 normal, 1 medium, 2 high, 3 realtime.",
    )
    poll: tuple[int, ...] | None = option(
        "--poll",
        kind=Axis("levels", most=100),
        metavar="0…100",
        help="How much threads poll for work; 0 waits.",
        shown="llama.cpp's",
    )


class LlamaOption(Options, section="llama.cpp"):
    """Which llama.cpp."""

    llama: tuple[Path, ...] | None = option(
        "--llama",
        kind=FilePath("PATH"),
        axis=True,
        complete="installs",
        common=True,
        setting="~/llama.cpp/build/bin",
        replaced_by=("url", "url_drafting"),
        help="Folder of a llama.cpp installation.",
        shown="our newest build, else the PATH",
    )

    @property
    def llamas(self) -> tuple[Path | None, ...]:
        """The llama.cpps; None for the one that is found."""
        return self.llama or (None,)


class ArgumentOptions(Options, section="llama.cpp"):
    """Arguments that are passed on."""

    args: tuple[tuple[str, ...], ...] | None = option(
        "--args --vary",
        kind=kinds.PassedOn(),
        axis=True,
        help="Other arguments for llama.cpp, in quotes, or after -- at the end; ' | ' separates values.",
    )
    draft_args: tuple[tuple[str, ...], ...] | None = option(
        "--draft-args", kind=kinds.PassedOn(), axis=True, help="The same for the runs that draft."
    )


class ProjectorOption(Options, section="Models"):
    """What reads images for the target."""

    mmproj: tuple[Path, ...] | None = option(
        "--mmproj -mm",
        kind=FilePath(exists=True),
        axis=True,
        help="GGUF that reads images for the target, with --engine server.",
    )


class TemplateOption(Options, section="Text"):
    """What makes one text of a chat."""

    chat_template_file: Path | None = option(
        "--chat-template-file", kind=FilePath(), help="Chat template in Jinja.", shown="the target's own"
    )


class RuntimeOptions(CacheOptions, ProcessorOptions, ArgumentOptions, ProjectorOption, TemplateOption):
    """llama.cpp's settings besides placement."""

    def check(self) -> None:
        """Refuse the types of both caches beside that of one of them.

        Raises:
            GgufspecError: both were given.
        """
        super().check()
        for both, flags in (("kv_type", ("-ctk", "-ctv")), ("kv_type_draft", ("-ctkd", "-ctvd"))):
            draft = both.removeprefix("kv_type")
            parts = (getattr(self, f"cache_type_{cache}{draft}") for cache in "kv")
            if getattr(self, both) and any(parts):
                name = self.options[both].name
                raise GgufspecError(
                    f"{name} is for both caches", f"give either {name} or {flags[0]} and {flags[1]}"
                )

    @property
    def caches(self) -> tuple[CacheTypes | None, ...]:
        """The types of the target's caches; None for llama.cpp's default."""
        return _pair_types(self.kv_type, self.cache_type_k, self.cache_type_v)

    @property
    def draft_caches(self) -> tuple[CacheTypes | None, ...]:
        """The types of the drafter's caches; None for those of the target."""
        return _pair_types(self.kv_type_draft, self.cache_type_k_draft, self.cache_type_v_draft)

    @property
    def runtimes(self) -> tuple[Runtime, ...]:
        """Every combination of the other settings."""
        from dataclasses import replace

        from ggufspec.domain import Runtime

        usual = Runtime(mlock=self.mlock or None, mmap=False if self.no_mmap else None)
        names = (*Runtime.settings(), "args", "draft_args")
        given = {name: getattr(self, name) for name in names}
        given["mmproj"] = tuple(file.absolute() for file in self.mmproj or ())
        template = self.chat_template_file
        given["chat_template_file"] = None if template is None else (template.absolute(),)
        combinations = product(*(given[name] or (getattr(usual, name),) for name in names))
        runtimes = (replace(usual, **dict(zip(names, values, strict=True))) for values in combinations)
        return tuple(dict.fromkeys(runtimes))


def _pair_types(
    both: tuple[str, ...] | None, k: tuple[str, ...] | None, v: tuple[str, ...] | None
) -> tuple[CacheTypes | None, ...]:
    """Return every pair of types of K and V caches; llama.cpp leaves the one that is not named at f16."""
    from ggufspec.domain import CacheTypes

    if both:
        return tuple(CacheTypes(one, one) for one in both)
    if not k and not v:
        return (None,)
    return tuple(CacheTypes(*types) for types in product(k or (_F16,), v or (_F16,)))


class ChatOptions(TemplateOption, section="Text"):
    """How a chat template is applied."""

    chat: bool | None = option(
        "--chat/--raw",
        kind=Flag(),
        help="Apply the target's chat template, or use texts as they are.",
        shown="set by the suite",
    )
    system: str | None = option(
        "--system",
        hidden="-sys --system-prompt",
        written={"-sysf -spf --system-prompt-file": kinds.TextOfFile()},
        help="System prompt for the chat template; -sysf FILE reads it from a file.",
    )


class SuiteOption(Options, section="Text"):
    """A prompt suite by its name."""

    suite: str | None = option(
        "--suite",
        kind=kinds.SuiteName(),
        setting="domains",
        replaced_by=("prompt", "prompt_file", "replay"),
        help=f"Built-in prompts: {', '.join(choices.SUITES)}; or those of a dataset on the Hub, "
        "hf:USER/DATASET[@REVISION][:PART].",
        shown="chosen for the pair",
    )


class TextOptions(SuiteOption, ChatOptions, section="Text"):
    """Prompts: texts, files and a named suite, in this order; without any, a suite that fits."""

    prompt: tuple[str | Prompt, ...] = option(
        "--prompt -p", (), repeated=True, common=True, help="Prompt to continue; can be repeated."
    )
    prompt_file: tuple[Path, ...] = option(
        "--prompt-file -f",
        (),
        hidden="--file",
        kind=FilePath(),
        repeated=True,
        help="Prompt suite (TOML, JSONL, Parquet) or a text to continue, also /dev/stdin; can be repeated.",
    )
    per_category: int | None = option(
        "--per-category", kind=Count(1), help="Use N prompts of each category, drawn with --seed."
    )


class AskingOptions(Options, section="Text"):
    """How prompts that are requests are asked."""

    constrain: tuple[str, ...] | None = option(
        "--constrain",
        kind=kinds.Switches(),
        metavar="on|off",
        help="off: leave the grammars and schemas of prompts out.",
        shown="on",
    )
    reasoning: tuple[Reasoning, ...] | None = option(
        "--reasoning",
        hidden="-rea --reasoning-budget",
        kind=Axis("tokens", words=("auto", "on", "off"), most=1 << 24),
        metavar="on|off|BUDGET",
        help="Let chats think, with --engine server; a number is the most tokens for that.",
        shown="auto: as prompt and template say",
    )

    @property
    def askings(self) -> tuple[Asking, ...]:
        """Every combination of both."""
        from ggufspec.domain import Asking

        return tuple(
            Asking(constrain=word == "on", reasoning=reasoning)
            for word, reasoning in product(self.constrain or ("on",), self.reasoning or ("auto",))
        )

    @property
    def sets_reasoning(self) -> bool:
        """Whether it is asked for, or against."""
        return any(reasoning != "auto" for reasoning in self.reasoning or ())


class LengthOption(Options, section="Text"):
    """How long the answers are."""

    n_predict: int = option(
        "--n-predict -n", 250, hidden="--predict", kind=Count(2), help="Tokens to generate in each run."
    )


class SamplingOptions(Options, section="Sampling"):
    """How tokens are chosen.

    Decoding is greedy unless ``temp`` is positive, or left out and ``top_k``, ``top_p`` or ``min_p`` ask for
    sampling, then at temperature 1; ``top_k`` defaults to llama.cpp's 40 there.
    """

    temp: float | None = option(
        "--temp",
        hidden="--temperature",
        kind=Number(0),
        help="Temperature.",
        shown="0 (greedy); 1 with --top-k, --top-p or --min-p",
    )
    top_k: int | None = option(
        "--top-k",
        kind=Count(0),
        help="Sample from the k most likely tokens.",
        shown="1 if greedy, otherwise 40",
    )
    top_p: float = option("--top-p", 1.0, kind=Number(0, 1), help="Top-p (nucleus) sampling; 1 turns it off.")
    min_p: float = option("--min-p", 0.0, kind=Number(0, 1), help="Min-p sampling; 0 turns it off.")
    seed: int = option(
        "--seed -s", 1, kind=Count(0), help="Random seed for sampling and for the order of runs."
    )


class UsersOption(Options, section="Traffic"):
    """Several users at once."""

    parallel: tuple[int, ...] | None = option(
        "--parallel -np",
        kind=Axis("users", least=1, most=1024),
        help="Users who send requests at once, with --engine server.",
        shown="one request after another",
    )


class DepthOptions(Options, section="Traffic"):
    """Other text before each prompt, and which."""

    depth: tuple[int, ...] | None = option(
        "--depth",
        kind=kinds.Depths(),
        help="Tokens of other text before each prompt, with --engine server.",
        shown="0",
    )
    context_file: Path | None = option(
        "--context-file",
        kind=FilePath(),
        help="Text or chat (JSONL) for --depth.",
        shown="plays of Shakespeare, in the public domain",
    )

    @property
    def depths(self) -> tuple[int, ...]:
        """How many tokens of other text stand before each prompt."""
        return self.depth or (0,)


class TrafficOptions(UsersOption, DepthOptions, section="Traffic"):
    """Requests that are sent at once, by clients or at times of their own."""

    rate: tuple[float, ...] | None = option(
        "--rate",
        kind=Axis("rates", number=float, least=0.001, most=10_000),
        help="Requests/s that arrive at random times, with --engine server.",
        shown="users wait for answers",
    )
    slo: ServiceLevel | None = option(
        "--slo",
        kind=kinds.LatencyLimits(),
        help="Latency limits for goodput, with --rate: ttft=500ms,itl=50ms.",
    )
    replay: Path | None = option(
        "--replay",
        kind=FilePath(),
        help="Send recorded requests again when they arrived: JSONL with times, or llama-server's log with "
        "--verbose.",
    )


class ServerOptions(Options, section="Running servers"):
    """Servers that run already; nothing is loaded then."""

    url: tuple[str, ...] | None = option(
        "--url",
        repeated=True,
        metavar="URL",
        help="Measure a running server with OpenAI's API: llama-server, vLLM, SGLang or another one. Name "
        "three that are started alike for a verdict: each is one load of the model.",
    )
    served_model: str | None = option(
        "--served-model", metavar="NAME", help="Model to request, where a server has several."
    )
    api_key_file: tuple[Path, ...] = option(
        "--api-key-file",
        (),
        elsewhere="In llama.cpp, --api-key-file has the keys that a server accepts.",
        kind=FilePath(),
        repeated=True,
        help="File with the servers' key; name one for each server if they differ.",
        shown="GGUFSPEC_API_KEY",
    )

    @property
    def names_servers(self) -> bool:
        """Whether servers that run already are asked."""
        return self.url is not None


class EngineOption(Options, section="llama.cpp"):
    """What runs the models."""

    engine: str | None = option(
        "--engine",
        kind=Word(*choices.ENGINES),
        metavar="ENGINE",
        setting="server",
        replaced_by=("tuned", "url", "url_drafting"),
        help=f"What runs the models: {', '.join(choices.ENGINES)}.",
        shown="the first one that can measure the pair",
    )


class CapacityOptions(Options, section="Placement"):
    """What a configuration is to serve. With ``parallel``, it is also measured so."""

    parallel: tuple[int, ...] | None = option(
        "--parallel -np",
        section="Traffic",
        kind=Axis("users", least=1, most=1024),
        common=True,
        help="Choose for this many users at once: forecast, and measured with as many slots and clients.",
        shown="one request after another",
    )
    serve_ctx: int | None = option(
        "--serve-ctx",
        kind=Count(256),
        common=True,
        help="Context that each request may use, in tokens.",
        shown="the largest of 4096, 8192, … that fits and the models were trained for",
    )
    serve_parallel: int = option(
        "--serve-parallel",
        1,
        kind=Count(1),
        help="Requests to serve at once (slots of llama-server), measured one after another.",
        shown="those of --parallel, or 1",
    )

    @property
    def users(self) -> int | None:
        """How many users send requests at once; None for one request after another."""
        return None if self.parallel is None else self.parallel[0]

    def check(self) -> None:
        """Refuse several numbers of users, and another number of slots than of users.

        Raises:
            GgufspecError: naming them.
        """
        super().check()
        if self.parallel is not None and len(self.parallel) > 1:
            raise GgufspecError(
                "a tuning is for one number of users",
                "give one with --parallel; `ggufspec crossover` compares several",
            )
        if self.users is not None and self.serve_parallel not in {1, self.users}:
            raise GgufspecError(
                f"--parallel {self.users} and --serve-parallel {self.serve_parallel} differ",
                "a tuning for several users measures the slots that are to be served: leave --serve-parallel "
                "out",
            )


class TimeLimitOption(Options, section="Measuring"):
    """How long a command may take."""

    max_time: float | None = option(
        "--max-time", 300.0, kind=kinds.Duration(), common=True, help="Time limit for everything: 2m, 1h."
    )


class FreshOption(Options, section="Measuring"):
    """Whether stored costs are used."""

    fresh: bool = option("--fresh", False, help="Measure costs again even if they are stored.")


class NameOption(Options, section="Measuring"):
    """The name of what is stored."""

    name: str | None = option("--name", help="Name of the stored result.")


class ResumeOption(NameOption, section="Measuring"):
    """What is continued."""

    resume: str | None = option(
        "--resume", metavar="NAME", complete="runs", help="Continue what was interrupted."
    )

    def check(self) -> None:
        """Refuse a name for what has one.

        Raises:
            GgufspecError: both were given.
        """
        super().check()
        if self.name is not None and self.resume is not None:
            raise GgufspecError("--name is for a new result and --resume for a stored one", "use one of them")


class DryRunOption(Options, section="Measuring"):
    """Looking before doing."""

    dry_run: bool = option(
        "--dry-run",
        False,
        python=False,
        common=True,
        help="Print what would be measured and the expected time, without measuring.",
    )


class MachineOptions(Options, section="Costs"):
    """Machines for a forecast from their peaks."""

    machine: str | None = option(
        "--machine",
        metavar="NAME",
        help="Forecast for this GPU or computer: a name, or its memory bandwidth such as 936G; several with "
        "commas. `whatif --machine list` prints the names.",
    )
    host: str | None = option(
        "--host",
        elsewhere=_HOST_ELSEWHERE,
        metavar="NAME",
        help="Machine whose processor computes the layers that are not on a GPU, in the same forms.",
    )


class RamOption(Options, section="Placement"):
    """The host's memory."""

    ram: int | None = option(
        "--ram",
        kind=kinds.Size(),
        help="Memory of the host to plan with, for the fastest places.",
        shown="not limited",
    )


class MemoryOptions(RamOption, section="Placement"):
    """The memory of a machine; sizes are in bytes."""

    vram: tuple[int, ...] | None = option(
        "--vram",
        kind=kinds.Sizes(),
        common=True,
        help="GPU memory to plan with: 24G, or 24G,12G for two.",
        shown="free memory",
    )
    reserve: int = option(
        "--reserve", 1 << 30, kind=kinds.Size(), common=True, help="GPU memory to leave free."
    )


class TunedOption(Options, section="Models"):
    """A tuned configuration."""

    tuned: str | None = option(
        "--tuned",
        metavar="NAME",
        complete="tunings",
        common=True,
        help="Use the configuration of this tuning.",
    )

    def check(self) -> None:
        """Refuse what a tuned configuration decides.

        Raises:
            GgufspecError: naming it.
        """
        super().check()
        if self.tuned is not None:
            self.refuse(DECIDED, "--tuned decides")


class BackendOption(Options, section="llama.cpp"):
    """What computes in a build."""

    backend: str = option(
        "--backend",
        "auto",
        kind=Word("auto", *choices.Backend),
        metavar="BACKEND",
        help="Compute backend to build: cpu, cuda, metal, vulkan, hip or auto.",
    )


class JobsOption(Options, section="llama.cpp"):
    """How fast a build is made."""

    jobs: int | None = option(
        "--jobs -j",
        kind=Count(1),
        elsewhere="In llama.cpp, -j is --json-schema, the form of an answer.",
        help="Parallel compiler jobs.",
        shown="as many as memory allows",
    )


class StrictOption(Options, section="Output"):
    """Exit codes of verdicts."""

    strict: bool = option(
        "--strict",
        False,
        python=False,
        help="Exit with code 35 instead of 0 if a warning puts a verdict in doubt, or a tuning is undecided.",
    )


class TableOptions(Options, section="Output"):
    """The format and the file of a table."""

    output: str = option(
        "--output -o",
        "",
        elsewhere=FORMAT_ELSEWHERE,
        kind=Word(*choices.OutputFormat),
        metavar="FORMAT",
        python=False,
        common=True,
        setting="json",
        help=f"Format: {', '.join(choices.OutputFormat)}.",
        shown="table on a terminal, otherwise md",
    )
    out: Path | None = option("--out", kind=FilePath(), python=False, help="Write the table to this file.")


class AnswerOption(Options, section="Output"):
    """The format of an answer that is not a table."""

    output: str = option(
        "--output -o",
        "text",
        elsewhere=FORMAT_ELSEWHERE,
        kind=Word("text", "json"),
        python=False,
        setting="json",
        help="Output format.",
    )


DECIDED: frozenset[str] = frozenset({"draft_min"}).union(
    *(
        group.options
        for group in (
            *(PairOption, ReferenceOptions, DraftingOptions, DraftChoiceOptions, LayerOptions, ThreadsOption),
            *(ContextOption, DeviceOptions, RuntimeOptions, EngineOption),
        )
    )
)
"""What a tuned configuration decides."""
