"""The types of tensors, and the names of quantizations, that llama.cpp and ik_llama.cpp read."""

from __future__ import annotations

from dataclasses import dataclass

_TYPES = """
0 F32 1 4, 1 F16 1 2, 2 Q4_0 32 18, 3 Q4_1 32 20, 6 Q5_0 32 22, 7 Q5_1 32 24, 8 Q8_0 32 34, 9 Q8_1 32 36,
10 Q2_K 256 84, 11 Q3_K 256 110, 12 Q4_K 256 144, 13 Q5_K 256 176, 14 Q6_K 256 210, 15 Q8_K 256 292,
16 IQ2_XXS 256 66, 17 IQ2_XS 256 74, 18 IQ3_XXS 256 98, 19 IQ1_S 256 50, 20 IQ4_NL 32 18,
21 IQ3_S 256 110, 22 IQ2_S 256 82, 23 IQ4_XS 256 136, 24 I8 1 1, 25 I16 1 2, 26 I32 1 4, 27 I64 1 8,
28 F64 1 8, 29 IQ1_M 256 56, 30 BF16 1 2, 34 TQ1_0 256 54, 35 TQ2_0 256 66, 39 MXFP4 32 17,
40 NVFP4 64 36, 41 Q1_0 128 18, 42 Q2_0 64 18
"""
"""Number in the file, name, elements of a block, its bytes (``ggml.h``, ``type_traits`` in ``ggml.c``)."""

_IK_TYPES = """
133 Q6_0 32 26, 134 IQ1_BN 64 13 2, 135 IQ2_BN 64 16 4, 137 IQ2_K 256 76, 138 IQ3_K 256 110,
139 IQ4_K 256 144, 140 IQ5_K 256 176, 141 IQ6_K 256 212, 144 IQ4_KS 256 136 4, 145 IQ2_KS 256 70 2,
146 IQ4_KSS 256 128 4, 151 Q8_KV 32 32 8, 152 IQ5_KS 256 168 4, 153 IQ2_KT 256 68 4,
154 IQ3_KT 256 100 4, 155 IQ4_KT 256 128 4, 156 IQ3_KS 256 102 2, 157 IQ2_KL 256 86 2,
158 IQ1_KT 256 56 4, 202 Q4_0_R8 32 18, 206 Q5_0_R4 32 22, 208 Q8_0_R8 32 34, 210 Q2_K_R4 256 84,
211 Q3_K_R4 256 110, 212 Q4_K_R4 256 144, 213 Q5_K_R4 256 176, 214 Q6_K_R4 256 210,
216 IQ2_XXS_R4 256 66, 217 IQ2_XS_R4 256 74, 218 IQ3_XXS_R4 256 98, 219 IQ1_S_R4 32 6 2,
220 IQ4_NL_R4 32 18, 221 IQ3_S_R4 256 110, 222 IQ2_S_R4 256 82, 223 IQ4_XS_R8 256 136,
229 IQ1_M_R4 32 7 2, 230 BF16_R16 1 2, 233 Q6_0_R4 32 26, 335 IQ2_BN_R4 64 16 4, 337 IQ2_K_R4 256 76,
338 IQ3_K_R4 256 110, 339 IQ4_K_R4 256 144, 340 IQ5_K_R4 256 176, 344 IQ4_KS_R4 256 136 4,
352 IQ5_KS_R4 256 168 4, 353 MXFP4_R8 32 17, 398 Q8_KV_R8 32 32 4, 399 Q8_K_R8 256 258
"""
"""The same of ik_llama.cpp alone; behind it the bytes at the head of each row (``row_meta_size``), if any."""

_FILE_TYPES = """
0 F32, 1 F16, 2 Q4_0, 3 Q4_1, 7 Q8_0, 8 Q5_0, 9 Q5_1, 10 Q2_K, 11 Q3_K_S, 12 Q3_K_M, 13 Q3_K_L,
14 Q4_K_S, 15 Q4_K_M, 16 Q5_K_S, 17 Q5_K_M, 18 Q6_K, 19 IQ2_XXS, 20 IQ2_XS, 21 Q2_K_S, 22 IQ3_XS,
23 IQ3_XXS, 24 IQ1_S, 25 IQ4_NL, 26 IQ3_S, 27 IQ3_M, 28 IQ2_S, 29 IQ2_M, 30 IQ4_XS, 31 IQ1_M, 32 BF16,
36 TQ1_0, 37 TQ2_0, 38 MXFP4_MOE, 39 NVFP4, 40 Q1_0, 41 Q2_0, 1024 GUESSED,
135 Q6_0, 136 IQ1_BN, 137 IQ2_BN, 138 IQ2_K, 139 IQ3_K, 140 IQ4_K, 141 IQ5_K, 142 IQ6_K, 145 IQ4_KS,
146 IQ3_KL, 147 IQ2_KS, 148 IQ4_KSS, 149 Q8_KV, 150 IQ5_KS, 151 IQ2_KT, 152 IQ3_KT, 153 IQ4_KT,
154 IQ3_KS, 155 IQ2_KL, 156 IQ1_KT, 202 Q4_0_R8, 207 Q8_0_R8, 208 Q5_0_R4, 210 Q2_K_R4, 211 Q3_K_R4,
214 Q4_K_R4, 216 Q5_K_R4, 218 Q6_K_R4, 219 IQ2_XXS_R4, 220 IQ2_XS_R4, 223 IQ3_XXS_R4, 224 IQ1_S_R4,
225 IQ4_NL_R4, 226 IQ3_S_R4, 229 IQ2_M_R4, 230 IQ4_XS_R8, 231 IQ1_M_R4, 232 BF16_R16, 335 Q6_0_R4,
337 IQ2_BN_R4, 338 IQ2_K_R4, 339 IQ3_K_R4, 340 IQ4_K_R4, 341 IQ5_K_R4, 345 IQ4_KS_R4, 350 IQ5_KS_R4,
351 MXFP4_R8, 398 Q8_KV_R8, 399 Q8_K_R8
"""
"""Number under ``general.file_type``, and what people call it (``llama_ftype`` in ``llama.h`` of both)."""


@dataclass(frozen=True)
class GgmlType:
    """A tensor type: ``block_size`` elements are stored in ``block_bytes`` bytes."""

    name: str
    block_size: int
    block_bytes: int
    row_head_bytes: int = 0

    def row_bytes(self, n_elements: int) -> int:
        """Return the bytes of a row of elements, which must fill whole blocks."""
        return self.row_head_bytes + n_elements // self.block_size * self.block_bytes


def _read(table: str) -> dict[int, GgmlType]:
    rows = (row.split() for row in table.split(","))
    return {int(number): GgmlType(name, *map(int, sizes)) for number, name, *sizes in rows}


GGML_TYPES = _read(_TYPES) | _read(_IK_TYPES)
"""Number in the file -> type."""

TYPES_BY_NAME = {ggml_type.name: ggml_type for ggml_type in GGML_TYPES.values()}

IK_TYPES = frozenset(ggml_type.name for ggml_type in _read(_IK_TYPES).values())
"""Names of the types that ik_llama.cpp alone reads."""

FILE_TYPES = {int(number): name for number, name in map(str.split, _FILE_TYPES.split(","))}
"""Number -> name of a quantization, such as ``Q3_K_S``."""
