"""Configs as published (the keys that matter), and the parameter counts of their checkpoints."""

import pytest

from rightsizer_engine.catalog.huggingface import from_config

LLAMA = {"model_type": "llama", "vocab_size": 32000, "rms_norm_eps": 1e-5, "tie_word_embeddings": False}
DEEPSEEK = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
BLOOM = {"model_type": "bloom", "vocab_size": 250880}
OPT = {"model_type": "opt", "vocab_size": 50272, "max_position_embeddings": 2048}
FALCON = {"model_type": "falcon", "vocab_size": 65024, "bias": False, "parallel_attn": True}
GEMMA = {"model_type": "gemma", "vocab_size": 256000, "head_dim": 256}
T5 = {"model_type": "t5", "vocab_size": 32128, "d_kv": 64, "relative_attention_num_buckets": 32}
CLIP_TEXT = {"hidden_size": 512, "num_attention_heads": 8, "intermediate_size": 2048, "num_hidden_layers": 12}


def sized(layers: int, hidden: int, ffn: int, heads: int, kv_heads: int | None = None) -> dict[str, object]:
    return {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": ffn,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads or heads,
    }


def short(layers: int, hidden: int, heads: int) -> dict[str, object]:
    return {"n_layer": layers, "n_embd": hidden, "n_head": heads}


CONFIGS: dict[str, tuple[dict[str, object], float]] = {
    "Llama-2-7b": (LLAMA | sized(32, 4096, 11008, 32), 6_738_415_616),
    "Llama-3.1-8B": (LLAMA | sized(32, 4096, 14336, 32, 8) | {"vocab_size": 128256}, 8_030_261_248),
    "Llama-3.1-405B": (LLAMA | sized(126, 16384, 53248, 128, 8) | {"vocab_size": 128256}, 405_853_388_800),
    "Llama-3.2-1B": (
        LLAMA | sized(16, 2048, 8192, 32, 8) | {"vocab_size": 128256, "tie_word_embeddings": True},
        1_235_814_400,
    ),
    "Llama-4-Scout (text)": (
        {
            "model_type": "llama4",
            "text_config": sized(48, 5120, 8192, 40, 8)
            | {
                "model_type": "llama4_text",
                "vocab_size": 202048,
                "head_dim": 128,
                "num_local_experts": 16,
                "num_experts_per_tok": 1,
                "intermediate_size_mlp": 16384,
                "interleave_moe_layer_step": 1,
                "attention_chunk_size": 8192,
            },
        },
        107_769_861_120,
    ),
    "Llama-4-Maverick (text)": (
        {
            "model_type": "llama4",
            "text_config": sized(48, 5120, 8192, 40, 8)
            | {
                "vocab_size": 202048,
                "head_dim": 128,
                "num_local_experts": 128,
                "num_experts_per_tok": 1,
                "intermediate_size_mlp": 16384,
                "interleave_moe_layer_step": 2,
            },
        },
        400_711_848_960,
    ),
    "Mistral-7B": (
        LLAMA | sized(32, 4096, 14336, 32, 8) | {"model_type": "mistral", "sliding_window": 4096},
        7_241_732_096,
    ),
    "Mixtral-8x7B": (
        LLAMA
        | sized(32, 4096, 14336, 32, 8)
        | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2},
        46_702_792_704,
    ),
    "Qwen2-7B": (
        LLAMA | sized(28, 3584, 18944, 28, 4) | {"model_type": "qwen2", "vocab_size": 152064},
        7_615_616_512,
    ),
    "Qwen1.5-MoE-A2.7B": (
        LLAMA
        | sized(24, 2048, 5632, 16)
        | {
            "model_type": "qwen2_moe",
            "vocab_size": 151936,
            "num_experts": 60,
            "num_experts_per_tok": 4,
            "moe_intermediate_size": 1408,
            "shared_expert_intermediate_size": 5632,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        },
        14_315_784_192,
    ),
    "Qwen3-8B": (
        LLAMA | sized(36, 4096, 12288, 32, 8) | {"model_type": "qwen3", "vocab_size": 151936},
        8_190_735_360,
    ),
    "Qwen3-30B-A3B": (
        LLAMA
        | sized(48, 2048, 6144, 32, 4)
        | {
            "model_type": "qwen3_moe",
            "vocab_size": 151936,
            "head_dim": 128,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 768,
        },
        30_532_122_624,
    ),
    "Qwen3-235B-A22B": (
        LLAMA
        | sized(94, 4096, 12288, 64, 4)
        | {
            "model_type": "qwen3_moe",
            "vocab_size": 151936,
            "head_dim": 128,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 1536,
        },
        235_093_634_560,
    ),
    "gemma-7b": (GEMMA | sized(28, 3072, 24576, 16), 8_537_680_896),
    "gemma-2-9b": (
        GEMMA | sized(42, 3584, 14336, 16, 8) | {"model_type": "gemma2", "sliding_window": 4096},
        9_241_705_984,
    ),
    "gemma-3-4b (text)": (
        {
            "model_type": "gemma3",
            "text_config": {
                "model_type": "gemma3_text",
                "hidden_size": 2560,
                "intermediate_size": 10240,
                "num_hidden_layers": 34,
                "sliding_window": 1024,
            },
        },
        3_880_263_168,
    ),
    "gpt2": (
        {"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_inner": None}
        | short(12, 768, 12),
        124_439_808,
    ),
    "gpt-neox-20b": (
        {"model_type": "gpt_neox", "vocab_size": 50432, "tie_word_embeddings": False}
        | sized(44, 6144, 24576, 64),
        20_554_567_680,
    ),
    "gpt-j-6b": (
        {"model_type": "gptj", "vocab_size": 50400, "tie_word_embeddings": False} | short(28, 4096, 16),
        6_050_882_784,
    ),
    "opt-350m": (
        OPT | sized(24, 1024, 4096, 16) | {"word_embed_proj_dim": 512, "do_layer_norm_before": False},
        331_196_416,
    ),
    "opt-175b": (OPT | sized(96, 12288, 49152, 96) | {"ffn_dim": 49152}, 174_604_468_224),
    "bloom-176b": (BLOOM | {"n_layer": 70, "hidden_size": 14336, "n_head": 112}, 176_247_271_424),
    "bloom-560m": (BLOOM | {"n_layer": 24, "n_embed": 1024, "num_attention_heads": 16}, 559_214_592),
    "falcon-7b": (
        FALCON
        | {"hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71, "num_kv_heads": 71}
        | {"multi_query": True, "new_decoder_architecture": False},
        6_921_720_704,
    ),
    "falcon-40b": (
        FALCON
        | {"hidden_size": 8192, "num_hidden_layers": 60, "num_attention_heads": 128, "num_kv_heads": 8}
        | {"multi_query": True, "new_decoder_architecture": True},
        41_303_293_952,
    ),
    "falcon-40b (first release)": (
        FALCON
        | {"model_type": "RefinedWeb", "hidden_size": 8192, "n_layer": 60, "n_head": 128, "n_head_kv": 8},
        41_303_293_952,
    ),
    "mpt-7b": (
        {"model_type": "mpt", "d_model": 4096, "n_layers": 32, "n_heads": 32, "expansion_ratio": 4}
        | {"vocab_size": 50432, "no_bias": True, "attn_config": {"attn_type": "multihead_attention"}},
        6_649_286_656,
    ),
    "phi-2": (
        {"model_type": "phi", "vocab_size": 51200, "tie_word_embeddings": False} | sized(32, 2560, 10240, 32),
        2_779_683_840,
    ),
    "Phi-3-mini": (
        LLAMA | sized(32, 3072, 8192, 32) | {"model_type": "phi3", "vocab_size": 32064},
        3_821_079_552,
    ),
    "OLMo-7B": (
        LLAMA | sized(32, 4096, 11008, 32) | {"model_type": "olmo", "vocab_size": 50304},
        6_888_095_744,
    ),
    "OLMo-2-7B": (
        LLAMA | sized(32, 4096, 11008, 32) | {"model_type": "olmo2", "vocab_size": 100352},
        7_298_617_344,
    ),
    "OLMoE-1B-7B": (
        LLAMA
        | sized(16, 2048, 1024, 16)
        | {"model_type": "olmoe", "vocab_size": 50304, "num_experts": 64, "num_experts_per_tok": 8},
        6_919_161_856,
    ),
    "DeepSeek-V2": (
        LLAMA
        | DEEPSEEK
        | sized(60, 5120, 12288, 128)
        | {"model_type": "deepseek_v2", "vocab_size": 102400, "q_lora_rank": 1536, "n_routed_experts": 160}
        | {"n_shared_experts": 2, "num_experts_per_tok": 6, "moe_intermediate_size": 1536}
        | {"first_k_dense_replace": 1, "moe_layer_freq": 1},
        235_741_434_880,
    ),
    "DeepSeek-V2-Lite": (
        LLAMA
        | DEEPSEEK
        | sized(27, 2048, 10944, 16)
        | {"model_type": "deepseek_v2", "vocab_size": 102400, "q_lora_rank": None, "n_routed_experts": 64}
        | {"n_shared_experts": 2, "num_experts_per_tok": 6, "moe_intermediate_size": 1408}
        | {"first_k_dense_replace": 1, "moe_layer_freq": 1},
        15_706_484_224,
    ),
    "DeepSeek-V3": (
        LLAMA
        | DEEPSEEK
        | sized(61, 7168, 18432, 128)
        | {"model_type": "deepseek_v3", "vocab_size": 129280, "q_lora_rank": 1536, "n_routed_experts": 256}
        | {"n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 2048}
        | {"first_k_dense_replace": 3, "moe_layer_freq": 1, "num_nextn_predict_layers": 1},
        671_026_419_200,
    ),
    "GLM-4.5-Air": (
        LLAMA
        | sized(46, 4096, 10944, 96, 8)
        | {"model_type": "glm4_moe", "vocab_size": 151552, "head_dim": 128, "n_routed_experts": 128}
        | {"n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 1408}
        | {"first_k_dense_replace": 1, "attention_bias": True, "use_qk_norm": False},
        106_852_245_504,
    ),
    "gpt-oss-20b": (
        LLAMA
        | sized(24, 2880, 2880, 64, 8)
        | {"model_type": "gpt_oss", "vocab_size": 201088, "head_dim": 64, "num_local_experts": 32}
        | {"num_experts_per_tok": 4, "attention_bias": True, "sliding_window": 128},
        20_914_757_184,
    ),
    "starcoder2-15b": (
        {"model_type": "starcoder2", "vocab_size": 49152, "use_bias": True, "tie_word_embeddings": False}
        | sized(40, 6144, 24576, 48, 4),
        15_957_889_024,
    ),
    "granite-3.0-8b": (
        LLAMA | sized(40, 4096, 12800, 32, 8) | {"vocab_size": 49155, "tie_word_embeddings": True},
        8_170_848_256,
    ),
    "command-r-v01": (
        {"model_type": "cohere", "vocab_size": 256000} | sized(40, 8192, 22528, 64),
        34_980_831_232,
    ),
    "nemotron-4-15b-like (Minitron-8B)": (
        {"model_type": "nemotron", "vocab_size": 256000, "head_dim": 128} | sized(32, 4096, 16384, 48, 8),
        8_271_169_536,
    ),
    "bert-base": (
        {"model_type": "bert", "vocab_size": 30522, "max_position_embeddings": 512, "type_vocab_size": 2}
        | sized(12, 768, 3072, 12),
        109_482_240,
    ),
    "roberta-base": (
        {"model_type": "roberta", "vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1}
        | sized(12, 768, 3072, 12),
        124_645_632,
    ),
    "whisper-large-v2": (
        {"model_type": "whisper", "d_model": 1280, "encoder_layers": 32, "decoder_layers": 32}
        | {"encoder_attention_heads": 20, "decoder_attention_heads": 20, "encoder_ffn_dim": 5120}
        | {"decoder_ffn_dim": 5120, "vocab_size": 51865, "num_mel_bins": 80, "max_source_positions": 1500}
        | {"max_target_positions": 448},
        1_543_304_960,
    ),
    "t5-base": (
        T5 | {"d_model": 768, "d_ff": 3072, "num_heads": 12, "num_layers": 12, "num_decoder_layers": 12},
        222_903_552,
    ),
    "flan-t5-xl": (
        T5
        | {"d_model": 2048, "d_ff": 5120, "num_heads": 32, "num_layers": 24, "num_decoder_layers": 24}
        | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        2_849_757_184,
    ),
    "bart-large": (
        {"model_type": "bart", "d_model": 1024, "encoder_layers": 12, "decoder_layers": 12}
        | {"encoder_attention_heads": 16, "decoder_attention_heads": 16, "encoder_ffn_dim": 4096}
        | {"decoder_ffn_dim": 4096, "vocab_size": 50265, "max_position_embeddings": 1024},
        406_291_456,
    ),
    "vit-base": (
        {
            "model_type": "vit",
            "image_size": 224,
            "patch_size": 16,
            "id2label": dict.fromkeys(range(1000)),
        }
        | sized(12, 768, 3072, 12),
        86_567_656,
    ),
    "clip-vit-base-patch32": (
        {"model_type": "clip", "projection_dim": 512, "vision_config": {"patch_size": 32}}
        | {"text_config": CLIP_TEXT | {"vocab_size": 49408}},
        151_277_313,
    ),
}


@pytest.mark.parametrize(("config", "published"), CONFIGS.values(), ids=CONFIGS)
def test_a_config_has_the_parameters_of_its_checkpoint(config: dict[str, object], published: float) -> None:
    assert from_config(config).parameters_total == pytest.approx(published, rel=0.001)


@pytest.mark.parametrize(
    ("name", "active"),
    [
        ("Mixtral-8x7B", 12_879_925_248),
        ("Qwen3-30B-A3B", 3_353_032_704),
        ("Qwen3-235B-A22B", 22_190_763_520),
        ("DeepSeek-V2", 21_375_800_320),
        ("DeepSeek-V3", 37_552_282_624),
        ("Llama-4-Maverick (text)", 17_184_691_200),
        ("gpt-oss-20b", 4_187_440_704),
    ],
)
def test_a_mixture_touches_only_its_active_parameters(name: str, active: float) -> None:
    assert from_config(CONFIGS[name][0]).parameters_active == pytest.approx(active, rel=0.01)
