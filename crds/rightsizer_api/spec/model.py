"""spec.model: the network, as a catalog name, a Hugging Face config.json or dimensions."""

import json
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, Strict, model_validator

from rightsizer_api.base import Model, Rule, Transition
from rightsizer_api.quantities import Name
from rightsizer_engine.domain.architecture import AttentionKind, Family
from rightsizer_engine.errors import InputError

_LONGEST_CONFIG = 65_536  # characters of JSON; the largest config.json of the catalog's models has 3,000

Width = Annotated[int, Field(ge=1, le=10_000_000)]
Zero = Annotated[int, Field(ge=0, le=10_000_000)]


class Dimensions(Model):
    """A transformer by its dimensions, for models without a catalog entry or a config.json."""

    family: Annotated[Family, Strict(False)] = Field(
        Family.DECODER, description="Network family.", examples=["decoder"]
    )
    layers: Annotated[int, Field(ge=1, le=10_000)] = Field(
        description="Transformer layers; for an encoder-decoder, the decoder layers.", examples=[32]
    )
    hidden: Width = Field(description="Width of the residual stream.", examples=[4096])
    ffn_hidden: Width | None = Field(
        None, description="Feed-forward width. Default: 4 x hidden.", examples=[14336]
    )
    heads: Annotated[int, Field(ge=1, le=100_000)] = Field(description="Attention heads.", examples=[32])
    kv_heads: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        None, description="Key and value heads (GQA, MQA). Default: heads.", examples=[8]
    )
    head_dim: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        None, description="Width of one head. Default: hidden / heads.", examples=[128]
    )
    vocab: Width = Field(
        description="Vocabulary size; 1 for a network without a vocabulary.", examples=[128256]
    )
    gated_mlp: bool = Field(
        True, description="Whether the MLP is gated (SwiGLU, three matrices).", examples=[True]
    )
    tied_embeddings: bool = Field(
        False, description="Whether the output layer shares the token embedding weights.", examples=[False]
    )
    parallel_residual: bool = Field(
        False, description="Whether attention and MLP run in parallel.", examples=[False]
    )
    max_sequence: Zero = Field(0, description="Maximum sequence length; 0: no limit.", examples=[8192])
    attention: Annotated[AttentionKind, Strict(False)] = Field(
        AttentionKind.GROUPED,
        description="gqa (includes MHA and MQA) or mla (multi-head latent attention).",
        examples=["gqa"],
    )
    q_lora_rank: Zero = Field(
        0, description="MLA: rank of the query projection; 0 for none.", examples=[1536]
    )
    kv_lora_rank: Zero = Field(0, description="MLA: rank of the key-value projection.", examples=[512])
    qk_nope_head_dim: Zero = Field(0, description="MLA: head width without rotary embedding.", examples=[128])
    qk_rope_head_dim: Zero = Field(0, description="MLA: rotary head width.", examples=[64])
    v_head_dim: Zero = Field(0, description="MLA: value head width.", examples=[128])
    sliding_window: Zero = Field(
        0, description="Window of a sliding-window layer, in tokens; 0 for none.", examples=[4096]
    )
    sliding_layers: Zero = Field(0, description="Number of sliding-window layers.", examples=[16])
    experts: Zero = Field(0, description="Experts per layer; 0 for a dense model.", examples=[256])
    top_k: Zero = Field(0, description="Experts per token.", examples=[8])
    expert_ffn_hidden: Zero = Field(
        0, description="Feed-forward width of one expert; 0: ffnHidden.", examples=[2048]
    )
    shared_experts: Zero = Field(0, description="Shared experts, which process every token.", examples=[1])
    dense_layers: Zero = Field(
        0, description="Dense layers at the start of a mixture of experts.", examples=[3]
    )
    moe_layer_step: Annotated[int, Field(ge=1, le=10_000)] = Field(
        1, description="Every n-th of the remaining layers has experts; 1: all of them.", examples=[2]
    )
    mtp_layers: Zero = Field(0, description="Multi-token-prediction layers.", examples=[1])
    encoder_layers: Zero = Field(0, description="Encoder layers of an encoder-decoder.", examples=[32])
    encoder_tokens: Zero = Field(0, description="Encoder tokens per sequence.", examples=[1500])
    encoder_hidden: Zero = Field(0, description="Encoder width; 0: hidden.", examples=[1280])
    encoder_ffn_hidden: Zero = Field(
        0, description="Encoder feed-forward width; 0: ffnHidden.", examples=[5120]
    )
    encoder_heads: Zero = Field(0, description="Encoder attention heads; 0: heads.", examples=[20])
    fixed_tokens: Zero = Field(0, description="Tokens per image (vision, DiT); 0 for text.", examples=[577])

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            field="headDim",
            remedy="hidden is not a multiple of heads; set headDim",
            cel="has(self.headDim) || self.hidden % self.heads == 0",
            holds=lambda d: d.head_dim is not None or d.hidden % d.heads == 0,
        ),
        Rule(
            field="kvHeads",
            remedy="kvHeads must divide heads",
            cel="!has(self.kvHeads) || self.heads % self.kvHeads == 0",
            holds=lambda d: d.kv_heads is None or d.heads % d.kv_heads == 0,
        ),
        Rule(
            field="topK",
            remedy="a mixture of experts needs topK, from 1 to experts",
            cel="self.experts == 0 || (self.topK >= 1 && self.topK <= self.experts)",
            holds=lambda d: d.experts == 0 or 1 <= d.top_k <= d.experts,
        ),
        Rule(
            field="kvLoraRank",
            remedy="mla needs kvLoraRank, qkNopeHeadDim, qkRopeHeadDim and vHeadDim",
            cel="self.attention != 'mla' || (self.kvLoraRank >= 1 && self.qkNopeHeadDim >= 1"
            " && self.qkRopeHeadDim >= 1 && self.vHeadDim >= 1)",
            holds=lambda d: (
                d.attention is not AttentionKind.LATENT
                or min(d.kv_lora_rank, d.qk_nope_head_dim, d.qk_rope_head_dim, d.v_head_dim) >= 1
            ),
        ),
        Rule(
            field="denseLayers",
            remedy="denseLayers and slidingLayers cannot exceed layers",
            cel="self.denseLayers <= self.layers && self.slidingLayers <= self.layers",
            holds=lambda d: max(d.dense_layers, d.sliding_layers) <= d.layers,
        ),
    )


class ModelSpec(Model):
    """The model: exactly one of name, config, configPath and dimensions. Immutable."""

    name: Name | None = Field(
        None,
        description="Catalog name (`rightsizer models` lists the names).",
        examples=["meta-llama/Llama-3.1-8B"],
    )
    config: dict[str, Any] | None = Field(
        None,
        description="A Hugging Face config.json, inline.",
        examples=[{"model_type": "llama", "hidden_size": 4096}],
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True},
    )
    config_path: Annotated[str, Field(min_length=1, max_length=4096)] | None = Field(
        None,
        description="Path of a config.json, relative to this file; not for Kubernetes.",
        examples=["./config.json"],
    )
    dimensions: Dimensions | None = Field(None, description="The model's dimensions.")

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            field="",
            remedy="give exactly one of name, config, configPath and dimensions",
            cel="[has(self.name), has(self.config), has(self.configPath), has(self.dimensions)]"
            ".filter(given, given).size() == 1",
            holds=lambda m: [m.name, m.config, m.config_path, m.dimensions].count(None) == 3,
        ),
    )
    transitions: ClassVar[tuple[Transition, ...]] = (
        Transition(
            remedy="the model cannot change: its checkpoints would not load; make a new TrainingPlan",
            cel="has(self.name) == has(oldSelf.name) && (!has(self.name) || self.name == oldSelf.name)"
            " && has(self.config) == has(oldSelf.config)"
            " && (!has(self.config) || self.config == oldSelf.config)"
            " && has(self.dimensions) == has(oldSelf.dimensions)"
            " && (!has(self.dimensions) || self.dimensions == oldSelf.dimensions)",
        ),
        Transition(
            remedy="configPath is read by the rightsizer command only; paste the file's content as config",
            cel="!has(self.configPath)",
        ),
    )

    @model_validator(mode="after")
    def _bound_config(self) -> Self:
        if self.config is not None and len(json.dumps(self.config, default=str)) > _LONGEST_CONFIG:
            raise InputError(
                "config", value="a very long object", remedy="must have at most 65,536 characters"
            )
        return self
