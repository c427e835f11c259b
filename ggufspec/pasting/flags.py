"""What becomes of each flag of llama.cpp in a command: an option here, passed on, left out, or translated."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ggufspec.choices import Method
from ggufspec.options import BenchOptions, Option
from ggufspec.redaction import SECRET_OPTIONS


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NOT_READ = _words("""
    tuned pair timeout warmup repeats output out api_key_file url url_drafting depth context_file llama args
    draft_args chat suite token
""")
"""Options of a bench that mean something else in llama.cpp, or that none of its flags is."""

FIELDS: Mapping[str, Option] = MappingProxyType(
    {
        spelling: option
        for name, option in BenchOptions.options.items()
        if name not in _NOT_READ and not option.elsewhere
        for spelling in option.spellings
    }
)
"""Spelling -> the option that it is here."""

PASSED_ON = _words("""
    -nkvo --no-kv-offload -kvo --kv-offload -nr --no-repack --repack --no-host --no-op-offload --op-offload
    --swa-full --rope-scaling --rope-scale --rope-freq-base --rope-freq-scale --yarn-orig-ctx
    --yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast --override-kv --lora
    --lora-scaled --control-vector --control-vector-scaled --control-vector-layer-range -Cr --cpu-range
    --cpu-strict -Cb --cpu-mask-batch -Crb --cpu-range-batch --cpu-strict-batch --prio-batch --poll-batch
    -ncffn --n-cpu-ffn -fitt --fit-target -fitc --fit-ctx
""")
"""Flags that change the speed and are passed on as they are."""

PASSED_ON_DRAFTING = _words("""
    -otd --override-tensor-draft --spec-draft-override-tensor -Cd --cpu-mask-draft --spec-draft-cpu-mask
    -Crd --cpu-range-draft --spec-draft-cpu-range --cpu-strict-draft --spec-draft-cpu-strict --prio-draft
    --spec-draft-prio --poll-draft --spec-draft-poll -Cbd --cpu-mask-batch-draft --spec-draft-cpu-mask-batch
    -Crbd --cpu-range-batch-draft --spec-draft-cpu-range-batch --cpu-strict-batch-draft
    --spec-draft-cpu-strict-batch --prio-batch-draft --spec-draft-prio-batch --poll-batch-draft
    --spec-draft-poll-batch --draft-p-split --spec-draft-p-split
""")
"""The same for the runs that draft."""

_LEFT_OUT = {
    flag: why
    for why, flags in {
        "who may connect, and what is logged": """
            --host --port --reuse-port -a --alias --tags --api-prefix --path --api-key-file --ssl-key-file
            --ssl-cert-file -to --timeout --threads-http --metrics --slots --no-slots
            --slots-endpoint-disable --props --models-dir --models-preset --models-max --models-autoload
            --no-models-autoload --sleep-idle-seconds --sse-ping-interval --server-base --media-path --ui
            --no-ui --webui --no-webui --ui-config --webui-config --ui-config-file --webui-config-file
            --ui-mcp-proxy --no-ui-mcp-proxy --webui-mcp-proxy --no-webui-mcp-proxy --mcp-servers-config
            --mcp-servers-json --cors-origins --cors-methods --cors-headers --cors-credentials
            --no-cors-credentials --tools --tools-runtime -ag --agent -no-ag --no-agent -v --verbose
            --log-verbose -lv --verbosity --log-verbosity --log-disable --log-enable --log-file --log-colors
            --log-prefix --no-log-prefix --log-timestamps --no-log-timestamps --log-jsonl --no-log-jsonl
            --log-prompts-dir --log-format --log-new --log-append -ld --logdir --perf --no-perf
            --verbose-prompt -ptc --print-token-count --show-timings --no-show-timings --offline -cl
            --cache-list --list-devices --license --version -h --help --usage --completion-bash -sys
            --system-prompt -sysf --system-prompt-file
        """,
        "the form of answers": """
            --jinja --no-jinja --skip-chat-parsing --no-skip-chat-parsing --prefill-assistant
            --no-prefill-assistant --reasoning-format --reasoning-budget-message --reasoning-effort
            --reasoning-preserve --no-reasoning-preserve --grammar --grammar-file -j --json-schema -jf
            --json-schema-file -e --escape --no-escape -sp --special -co --color -r --reverse-prompt -i
            --interactive -if --interactive-first -cnv --conversation -no-cnv --no-conversation -st
            --single-turn --simple-io --display-prompt --no-display-prompt --in-prefix --in-prefix-bos
            --in-suffix -mli --multiline-input --ignore-eos --spm-infill --keep -ins --instruct -cml
            --chatml
        """,
        "the template is the target's own, or that of --chat-template-file": "--chat-template",
        "a prompt says it: chat_template_kwargs": "--chat-template-kwargs",
        "memory between requests": """
            -cb --cont-batching -nocb --no-cont-batching --context-shift --no-context-shift -cram
            --cache-ram --cache-reuse --cache-prompt --no-cache-prompt --cache-idle-slots
            --no-cache-idle-slots --slot-save-path -sps --slot-prompt-similarity -ctxcp --ctx-checkpoints
            --swa-checkpoints -cms --checkpoint-min-step -cpent --checkpoint-every-n-tokens -kvu
            --kv-unified -no-kvu --no-kv-unified --kv-unified-per-slot -dt --defrag-thold --prompt-cache
            --prompt-cache-all --prompt-cache-ro -lcs --lookup-cache-static -lcd --lookup-cache-dynamic
        """,
        "loading": """
            --warmup --no-warmup --check-tensors -dio --direct-io -ndio --no-direct-io -lzm --lazy-mode
            --lora-init-without-apply
        """,
        "samplers that a measurement does not have": """
            --samplers --sampler-seq --sampling-seq --typical --typical-p --top-nsigma --top-n-sigma
            --xtc-probability --xtc-threshold --repeat-last-n --repeat-penalty --presence-penalty
            --frequency-penalty --dry-multiplier --dry-base --dry-allowed-length --dry-penalty-last-n
            --dry-sequence-breaker --dynatemp-range --dynatemp-exp --mirostat --mirostat-lr --mirostat-ent
            -l --logit-bias --adaptive-target --adaptive-decay -bs --backend-sampling --penalize-nl --tfs
        """,
        "images and other inputs": """
            -mmu --mmproj-url --mmproj-auto --no-mmproj --no-mmproj-auto --mmproj-offload --no-mmproj-offload
            -mmdev --mmproj-device --image --audio --video --image-min-tokens
            --image-max-tokens --video-fps --video-timestamp-interval --video-ffmpeg-dir
            --mtmd-batch-max-tokens --embedding --embeddings --rerank --reranking --pooling --embd-normalize
        """,
    }.items()
    for flag in flags.split()
}
"""Flag that no measurement needs -> why. It may take a value."""

NO_VALUE = _words("""
    --mlock --no-mmap --mmap -cmoe --cpu-moe -cmoed --cpu-moe-draft --offline --spec-draft-cpu-moe
    --spec-default --spec-draft-backend-sampling --no-spec-draft-backend-sampling -nkvo --no-kv-offload -kvo
    --kv-offload -nr --no-repack --repack --no-host --no-op-offload --op-offload --swa-full
""")
"""Flags without a value, of those that are read or passed on."""


class Translation(NamedTuple):
    """How a flag of earlier builds is spelled today.

    Attributes:
        today: the flag; None where nothing stands for it.
        since: the first build without the earlier one.
        why: what happens instead, where nothing stands for it.
    """

    today: str | None
    since: int
    why: str = ""


GONE: Mapping[str, Translation] = MappingProxyType(
    {
        **dict.fromkeys(("--draft", "--draft-n", "--draft-max"), Translation("--spec-draft-n-max", 8955)),
        **dict.fromkeys(("--draft-min", "--draft-n-min"), Translation("--spec-draft-n-min", 8955)),
        **dict.fromkeys(("-ps", "--p-split"), Translation("--spec-draft-p-split", 4159)),
        **dict.fromkeys(
            ("-cd", "--ctx-size-draft", "--spec-draft-ctx-size"),
            Translation(None, 9109, "the drafter has the context of the target"),
        ),
        **dict.fromkeys(
            ("--spec-replace", "--spec-draft-replace"),
            Translation(None, 9109, "drafters of other vocabularies are refused"),
        ),
        "--no-mmap": Translation("--load-mode none", 11312),
        "--mmap": Translation("--load-mode mmap", 11312),
        "--mlock": Translation("--load-mode mlock", 11312),
        "--spec-ngram-size-n": Translation("--spec-ngram-mod-n-match", 11312),
        "--spec-ngram-size-m": Translation("--spec-ngram-mod-n-max", 11312),
        "--spec-ngram-min-hits": Translation("--spec-ngram-map-k4v-min-hits", 11312),
    }
)
"""Spelling of earlier builds -> that of llama.cpp b11312."""

DRAFT_THREADS_ALONE = _words(
    "-td --threads-draft --spec-draft-threads -tbd --threads-batch-draft --spec-draft-threads-batch"
)
DRAFT_THREADS = DRAFT_THREADS_ALONE | {"-tb", "--threads-batch"}
HF_FILE = frozenset({"-hff", "--hf-file"})
FILES = frozenset({"--lora", "--control-vector"})
"""Flags that are passed on whose value is a file."""
DRAFT_PARAMS = frozenset({"-draft", "--draft-params"})
DRAFTERS: Mapping[str, str] = MappingProxyType(
    {
        "target": "-md",
        "ngl": "-ngld",
        "devices": "-devd",
        "override_tensor": "-otd",
        "cache_type_k": "-ctkd",
        "cache_type_v": "-ctvd",
    }
)
"""Option of the target -> the flag that says the same of the drafter."""
LOAD_MODE = frozenset({"-lm", "--load-mode"})
SPEC_TYPE = frozenset({"--spec-type"})
TEMPLATE_WORDS = frozenset({"--chat-template-kwargs"})
ON_HUB = _words("-hf -hfr --hf-repo -hfd -hfrd --hf-repo-draft --spec-draft-hf")

_VARIABLES = {
    "LLAMA_ARG_BATCH": "--batch-size",
    "LLAMA_ARG_CHECKPOINT_EVERY_NT": "--checkpoint-every-n-tokens",
    "LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT": "--checkpoint-min-step",
    "LLAMA_ARG_DIO": "--direct-io",
    "LLAMA_ARG_ENDPOINT_METRICS": "--metrics",
    "LLAMA_ARG_ENDPOINT_PROPS": "--props",
    "LLAMA_ARG_ENDPOINT_SLOTS": "--slots",
    "LLAMA_ARG_HFD_REPO": "--hf-repo-draft",
    "LLAMA_ARG_KV_SPLIT": "--kv-unified",
    "LLAMA_ARG_NO_ENDPOINT_SLOTS": "--no-slots",
    "LLAMA_ARG_N_PARALLEL": "--parallel",
    "LLAMA_ARG_ROPE_SCALING_TYPE": "--rope-scaling",
    "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K": "--cache-type-k-draft",
    "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V": "--cache-type-v-draft",
    "LLAMA_ARG_SPEC_DRAFT_HF_REPO": "--hf-repo-draft",
    "LLAMA_ARG_STATIC_PATH": "--path",
    "LLAMA_ARG_THINK": "--reasoning-format",
    "LLAMA_ARG_THINK_BUDGET": "--reasoning-budget",
    "LLAMA_ARG_THINK_BUDGET_MESSAGE": "--reasoning-budget-message",
    "LLAMA_ARG_UBATCH": "--ubatch-size",
}
"""Variables whose flags are not named after them."""


def flag_of_variable(name: str) -> str | None:
    """Return the flag that a variable of llama-server stands for; None for other variables."""
    if not name.startswith("LLAMA_ARG_"):
        return None
    return _VARIABLES.get(name) or f"--{name.removeprefix('LLAMA_ARG_').lower().replace('_', '-')}"


def flag_of_key(key: str) -> str:
    """Return the flag that a key of a preset stands for: a variable, or a flag without its dashes."""
    long = f"--{key}"
    is_short = not is_known(long) and is_known(f"-{key}")
    return flag_of_variable(key) or (f"-{key}" if is_short else long)


def is_known(flag: str) -> bool:
    """Whether this package knows what becomes of a flag."""
    named = PASSED_ON | PASSED_ON_DRAFTING | SECRET_OPTIONS | DRAFT_THREADS | HF_FILE | LOAD_MODE
    return flag in named or any(flag in table for table in (FIELDS, _LEFT_OUT, GONE))


def with_hyphens(word: str) -> str:
    """Return a word whose dashes a word processor or a forum changed as the flag that it was."""
    match = _DASHES.match(word)
    if match is None or word.isascii():
        return word
    name = word[match.end() :]
    spelled = (f"{hyphens}{name}" for hyphens in ("--", "-"))
    return next((flag for flag in spelled if is_known(flag.partition("=")[0])), word)


def why_left_out(flag: str) -> str | None:
    """Return why a measurement does not need a flag; None for others."""
    return _LEFT_OUT.get(flag)


def words_of_setting(flag: str, value: str) -> tuple[str, ...]:
    """Return the words of a flag whose value is a text, as in variables and presets; a switch has none."""
    is_switch = flag in NO_VALUE or (value in _YES | _NO and why_left_out(flag) is not None)
    if not is_switch:
        return (flag, value)
    if value in _YES:
        return (flag,)
    opposite = f"--{flag.removeprefix('--no-')}" if flag.startswith("--no-") else f"--no-{flag[2:]}"
    return (opposite,) if is_known(opposite) else ()


def read_thinking(value: str) -> str | None:
    """Return what words for a template say of thinking, on or off; None where they say more, or nothing."""
    match = re.fullmatch(r"\s*\{\s*\"enable_thinking\"\s*:\s*\"?(true|false)\"?\s*\}\s*", value)
    return None if match is None else "on" if match[1] == "true" else "off"


_DASHES = re.compile("[-\u2010\u2011\u2013\u2014\u2212]+")
_YES = frozenset({"1", "true", "on", "enabled", ""})
_NO = frozenset({"0", "false", "off", "disabled"})


_STAGES = {method.stage: method for method in Method}
_OWN_STAGES = {Method.SUFFIX.stage, *(method.stage for method in Method if method.is_head)}
_OF_MODELS = {"n_max": "--draft", "n_min": "--draft-min", "p_min": "--p-min"}
_OF_NGRAMS = {
    "n_max": "size-m",
    "n_min": "n-min",
    "ngram_size_n": "size-n",
    "ngram_size_m": "size-m",
    "ngram_min_hits": "min-hits",
    "suffix_min_match_len": "size-n",
}


class DraftingStage(NamedTuple):
    """One method of ik_llama.cpp's ``--spec-type TYPE:key=value,…``, with its settings as they are given."""

    method: Method
    settings: Sequence[tuple[str, str]]

    @classmethod
    def read(cls, value: str) -> DraftingStage | None:
        """Return the stage that a value of ``--spec-type`` is; None for llama.cpp's own values."""
        name, colon, settings = value.partition(":")
        name = name.replace("_", "-")
        if name not in _STAGES or not (colon or name in _OWN_STAGES):
            return None
        pairs = (pair.partition("=") for pair in settings.split(",") if "=" in pair)
        return cls(_STAGES[name], [(key.replace("-", "_"), text) for key, _, text in pairs])


def options_of(stages: Sequence[DraftingStage]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the options that stages stand for, each with its value, and the settings that no option is."""
    options, ngrams, unread = [("--method", "+".join(stage.method for stage in stages))], [], []
    for method, settings in stages:
        for key, text in settings:
            here = (_OF_MODELS if method.drafts_with_model else _OF_NGRAMS).get(key)
            if here is None:
                unread.append(f"--spec-type {method.stage}:{key}")
            elif here.startswith("--"):
                options.append((here, text))
            else:
                ngrams.append(f"{here}={text}")
    return [*options, *([("--ngram", ",".join(ngrams))] if ngrams else [])], unread
