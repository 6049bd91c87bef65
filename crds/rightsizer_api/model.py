"""spec.model: what is trained, by catalog name, by Hugging Face config.json, or by its dimensions."""

import json
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, Strict, model_validator

from rightsizer.domain.architecture import AttentionKind, Family
from rightsizer.errors import InputError
from rightsizer_api.base import Model, Rule, Transition
from rightsizer_api.quantities import Name

__all__ = ["Dimensions", "ModelSpec"]

_LONGEST_CONFIG = 65_536  # characters of JSON; the largest config.json of the catalog's models has 3,000

Width = Annotated[int, Field(ge=1, le=10_000_000)]
Zero = Annotated[int, Field(ge=0, le=10_000_000)]


class Dimensions(Model):
    """A transformer by its dimensions, for what no catalog and no config.json describes."""

    family: Annotated[Family, Strict(False)] = Field(
        Family.DECODER, description="The shape of the network.", examples=["decoder"]
    )
    layers: Annotated[int, Field(ge=1, le=10_000)] = Field(
        description="Transformer layers (of an encoder-decoder: the decoder's).", examples=[32]
    )
    hidden: Width = Field(description="Width of the residual stream.", examples=[4096])
    ffn_hidden: Width | None = Field(
        None, description="Width of the feed-forward part. Default: 4 x hidden.", examples=[14336]
    )
    heads: Annotated[int, Field(ge=1, le=100_000)] = Field(description="Attention heads.", examples=[32])
    kv_heads: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        None, description="Key and value heads (GQA, MQA). Default: as many as heads.", examples=[8]
    )
    head_dim: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        None, description="Width of one head. Default: hidden / heads.", examples=[128]
    )
    vocab: Width = Field(description="Tokens in the vocabulary (1 where there is none).", examples=[128256])
    gated_mlp: bool = Field(
        True, description="Whether the feed-forward part is gated (SwiGLU): three matrices.", examples=[True]
    )
    tied_embeddings: bool = Field(
        False, description="Whether the head shares the token embedding's weights.", examples=[False]
    )
    parallel_residual: bool = Field(
        False, description="Whether attention and feed-forward run side by side.", examples=[False]
    )
    max_sequence: Zero = Field(0, description="Longest sequence the model takes; 0: any.", examples=[8192])
    attention: Annotated[AttentionKind, Strict(False)] = Field(
        AttentionKind.GROUPED,
        description="gqa (also MHA and MQA) or mla (multi-head latent attention).",
        examples=["gqa"],
    )
    q_lora_rank: Zero = Field(
        0, description="MLA: rank of the query projection; 0 for none.", examples=[1536]
    )
    kv_lora_rank: Zero = Field(0, description="MLA: rank of the key-value projection.", examples=[512])
    qk_nope_head_dim: Zero = Field(0, description="MLA: width of a head without rotary.", examples=[128])
    qk_rope_head_dim: Zero = Field(0, description="MLA: rotary width of a head.", examples=[64])
    v_head_dim: Zero = Field(0, description="MLA: width of a value head.", examples=[128])
    sliding_window: Zero = Field(
        0, description="Tokens a sliding-window layer looks back; 0 for none.", examples=[4096]
    )
    sliding_layers: Zero = Field(0, description="Layers that use the sliding window.", examples=[16])
    experts: Zero = Field(0, description="Experts of a layer; 0 for a dense model.", examples=[256])
    top_k: Zero = Field(0, description="Experts that a token visits.", examples=[8])
    expert_ffn_hidden: Zero = Field(0, description="Width of one expert; 0: ffnHidden.", examples=[2048])
    shared_experts: Zero = Field(0, description="Experts that every token visits.", examples=[1])
    dense_layers: Zero = Field(
        0, description="First layers that are dense in a mixture of experts.", examples=[3]
    )
    moe_layer_step: Annotated[int, Field(ge=1, le=10_000)] = Field(
        1, description="Of the other layers, every such one has experts.", examples=[2]
    )
    mtp_layers: Zero = Field(0, description="Multi-token-prediction layers.", examples=[1])
    encoder_layers: Zero = Field(0, description="Layers of the encoder of an encoder-decoder.", examples=[32])
    encoder_tokens: Zero = Field(0, description="Tokens the encoder reads for one sequence.", examples=[1500])
    encoder_hidden: Zero = Field(0, description="Width of the encoder; 0: hidden.", examples=[1280])
    encoder_ffn_hidden: Zero = Field(0, description="The encoder's ffnHidden; 0: the same.", examples=[5120])
    encoder_heads: Zero = Field(0, description="The encoder's heads; 0: the same.", examples=[20])
    fixed_tokens: Zero = Field(
        0, description="Tokens of one image (vision, DiT); 0 otherwise.", examples=[577]
    )

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            field="headDim",
            remedy="hidden is no multiple of heads; set headDim",
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
    """What is trained: exactly one of name, config, configPath and dimensions. It cannot change later."""

    name: Name | None = Field(
        None,
        description="A model of the catalog (`rightsizer models` lists them).",
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
        description="A config.json on disk, relative to this file. `rightsizer` reads it; Kubernetes cannot.",
        examples=["./config.json"],
    )
    dimensions: Dimensions | None = Field(None, description="The dimensions, spelled out.")

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
        # Unknown fields are invisible to CEL, so a changed inline config is for the operator to notice.
        Transition(
            remedy="the model cannot change: its checkpoints would not load; make a new TrainingPlan",
            cel="has(self.name) == has(oldSelf.name) && (!has(self.name) || self.name == oldSelf.name)"
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
