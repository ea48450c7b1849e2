"""Views for analysts and solvers, the devices that times are estimated for, and indexes.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# One row per model: its newest profile, per sample.
MODEL_TOTALS = """
CREATE VIEW model_totals AS
SELECT t.zoo, t.model, n.profile_count, t.profile_id AS newest_profile_id, t.batch_size,
       t.param_count, t.param_bytes, t.buffer_bytes,
       t.fwd_macs / t.batch_size AS fwd_macs_per_sample,
       t.fwd_flops / t.batch_size AS fwd_flops_per_sample,
       t.bwd_flops / t.batch_size AS bwd_flops_per_sample,
       t.kept_bytes / t.batch_size AS kept_bytes_per_sample,
       t.peak_bytes
FROM (SELECT m.zoo, m.name, MAX(p.profile_id) AS newest, COUNT(*) AS profile_count
      FROM profiles AS p JOIN models AS m ON m.model_id = p.model_id
      GROUP BY m.zoo, m.name) AS n
JOIN profile_totals AS t ON t.profile_id = n.newest
WHERE t.batch_size > 0
"""

# The hottest operators of a profile are its first rows ordered by flops or by bytes.
OPERATOR_TOTALS = """
CREATE VIEW operator_totals AS
SELECT o.profile_id, o.operator, o.phase, COUNT(*) AS op_count,
       SUM(CASE WHEN o.flops_status = 'unknown' THEN 1 ELSE 0 END) AS unknown_op_count,
       CAST(SUM(o.macs) AS BIGINT) AS macs,
       CAST(SUM(o.pointwise_flops) AS BIGINT) AS pointwise_flops,
       CAST(SUM(2 * o.macs + o.pointwise_flops) AS BIGINT) AS flops,
       CAST(SUM(o.bytes_read) AS BIGINT) AS bytes_read,
       CAST(SUM(o.bytes_written) AS BIGINT) AS bytes_written
FROM ops AS o
GROUP BY o.profile_id, o.operator, o.phase
"""

# A module's sums include those of the modules inside it: '' is the whole model.
# Every pair of a module and one that it lies within, itself first; summed up, then named.
MODULE_TOTALS = """
CREATE VIEW module_totals AS
WITH RECURSIVE inside(profile_id, module_id, within_id) AS (
  SELECT profile_id, module_id, module_id FROM modules
  UNION ALL
  SELECT i.profile_id, i.module_id, m.parent_id
  FROM inside AS i
  JOIN modules AS m ON m.profile_id = i.profile_id AND m.module_id = i.within_id
  WHERE m.parent_id >= 0
)
SELECT m.profile_id, m.module_id, m.path, m.class_name,
       t.call_count, t.fwd_macs, t.bwd_macs, t.fwd_flops, t.bwd_flops,
       t.kept_bytes, t.grad_bytes, t.param_bytes, t.buffer_bytes
FROM (
  SELECT i.profile_id, i.within_id,
         CAST(SUM(d.call_count) AS BIGINT) AS call_count,
         CAST(SUM(d.fwd_macs) AS BIGINT) AS fwd_macs,
         CAST(SUM(d.bwd_macs) AS BIGINT) AS bwd_macs,
         CAST(SUM(d.fwd_flops) AS BIGINT) AS fwd_flops,
         CAST(SUM(d.bwd_flops) AS BIGINT) AS bwd_flops,
         CAST(SUM(d.kept_bytes) AS BIGINT) AS kept_bytes,
         CAST(SUM(d.grad_bytes) AS BIGINT) AS grad_bytes,
         CAST(SUM(d.param_bytes) AS BIGINT) AS param_bytes,
         CAST(SUM(d.buffer_bytes) AS BIGINT) AS buffer_bytes
  FROM inside AS i
  JOIN module_calls AS d ON d.profile_id = i.profile_id AND d.module_id = i.module_id
  GROUP BY i.profile_id, i.within_id
) AS t
JOIN modules AS m ON m.profile_id = t.profile_id AND m.module_id = t.within_id
"""

# What a module does itself: the calls of its own forward, its own parameters.
# Calls are summed first: joined one by one, every module would look through all of them.
MODULE_CALLS = """
CREATE VIEW module_calls AS
SELECT m.profile_id, m.module_id, m.path, m.class_name,
       COALESCE(c.call_count, 0) AS call_count,
       COALESCE(c.fwd_macs, 0) AS fwd_macs, COALESCE(c.bwd_macs, 0) AS bwd_macs,
       COALESCE(c.fwd_flops, 0) AS fwd_flops, COALESCE(c.bwd_flops, 0) AS bwd_flops,
       COALESCE(c.kept_bytes, 0) AS kept_bytes, COALESCE(c.grad_bytes, 0) AS grad_bytes,
       m.param_bytes, m.buffer_bytes
FROM modules AS m
LEFT JOIN (
  SELECT n.profile_id, n.module_id, COUNT(*) AS call_count,
         CAST(SUM(f.fwd_macs) AS BIGINT) AS fwd_macs,
         CAST(SUM(f.bwd_macs) AS BIGINT) AS bwd_macs,
         CAST(SUM(2 * f.fwd_macs + f.fwd_pointwise_flops) AS BIGINT) AS fwd_flops,
         CAST(SUM(2 * f.bwd_macs + f.bwd_pointwise_flops) AS BIGINT) AS bwd_flops,
         CAST(SUM(s.kept_bytes) AS BIGINT) AS kept_bytes,
         CAST(SUM(s.grad_bytes) AS BIGINT) AS grad_bytes
  FROM nodes AS n
  LEFT JOIN flop_counts AS f ON f.profile_id = n.profile_id AND f.node_id = n.node_id
  LEFT JOIN mem_stats AS s ON s.profile_id = n.profile_id AND s.node_id = n.node_id
  WHERE n.kind NOT IN ('placeholder', 'output')
  GROUP BY n.profile_id, n.module_id
) AS c ON c.profile_id = m.profile_id AND c.module_id = m.module_id
"""

MEMORY_TIMELINE = """
CREATE VIEW memory_timeline AS
SELECT o.profile_id, o.op_id, o.phase, o.operator, COALESCE(n.name, '') AS call, o.live_bytes
FROM ops AS o
LEFT JOIN nodes AS n ON n.profile_id = o.profile_id AND n.node_id = o.node_id
"""

# The roofline: the larger of FLOPs / peak and bytes / bandwidth, plus the overhead of a launch.
OP_TIMES = """
CREATE VIEW op_times AS
SELECT profile_id, op_id, phase, operator, node_id, device, flops, size_bytes,
       compute_us, memory_us,
       CASE WHEN flops = 0 AND size_bytes = 0 THEN 0.0
            WHEN compute_us > memory_us THEN compute_us + launch_overhead_us
            ELSE memory_us + launch_overhead_us END AS time_us,
       CASE WHEN flops = 0 AND size_bytes = 0 THEN 'nothing'
            WHEN launch_overhead_us > compute_us AND launch_overhead_us > memory_us THEN 'launch'
            WHEN compute_us > memory_us THEN 'compute' ELSE 'memory' END AS bound
FROM (
  SELECT o.profile_id, o.op_id, o.phase, o.operator, o.node_id, d.name AS device,
         2 * o.macs + o.pointwise_flops AS flops,
         CASE WHEN o.is_view = 1 THEN 0 ELSE o.bytes_read + o.bytes_written END AS size_bytes,
         1e6 * (2 * o.macs + o.pointwise_flops) / d.peak_flops_per_second AS compute_us,
         CASE WHEN o.is_view = 1 THEN 0.0
              ELSE 1e6 * (o.bytes_read + o.bytes_written) / d.bandwidth_bytes_per_second
         END AS memory_us,
         d.launch_overhead_us
  FROM ops AS o
  JOIN profiles AS p ON p.profile_id = o.profile_id
  JOIN devices AS d
    ON d.dtype = CASE WHEN o.macs > 0 AND p.autocast <> '' THEN p.autocast ELSE p.dtype END
) AS t
"""

ACTIVATION_PER_PARAMETER = """
CREATE VIEW activation_per_parameter AS
SELECT profile_id, zoo, model, batch_size, dtype, mode, target, kept_bytes, param_bytes,
       CASE WHEN param_bytes = 0 THEN 0.0 ELSE 1.0 * kept_bytes / param_bytes END
         AS kept_bytes_per_param_byte
FROM profile_totals
"""

# MiniMalloc: half-open intervals, sizes as the allocator's blocks. Only what is born in the step.
V_MINIMALLOC = """
CREATE VIEW v_minimalloc AS
SELECT s.profile_id, s.storage_id AS id, s.birth_op_id AS lower,
       CASE WHEN s.death_op_id < p.op_count THEN s.death_op_id + 1 ELSE p.op_count END AS upper,
       s.block_bytes AS size
FROM storages AS s
JOIN profiles AS p ON p.profile_id = s.profile_id
WHERE s.is_host = 0 AND s.block_bytes > 0 AND s.birth_op_id >= 0
"""

# Frees come after their step, allocations before: seq orders them, ties by storage.
V_MEM_EVENT = """
CREATE VIEW v_mem_event AS
SELECT s.profile_id, 2 * s.birth_op_id AS seq, 'alloc' AS kind, s.storage_id,
       s.birth_op_id AS op_id, s.address, s.block_bytes, s.size_bytes, s.storage_class
FROM storages AS s WHERE s.is_host = 0 AND s.block_bytes > 0
UNION ALL
SELECT s.profile_id, 2 * s.death_op_id + 1, 'free', s.storage_id,
       s.death_op_id, s.address, s.block_bytes, s.size_bytes, s.storage_class
FROM storages AS s
JOIN profiles AS p ON p.profile_id = s.profile_id
WHERE s.is_host = 0 AND s.block_bytes > 0 AND s.death_op_id < p.op_count
"""

V_CHAKRA_NODE = """
CREATE VIEW v_chakra_node AS
SELECT o.profile_id, o.op_id AS id, o.operator AS name, o.phase, o.node_id,
       2 * o.macs + o.pointwise_flops AS num_ops, o.bytes_read + o.bytes_written AS tensor_size
FROM ops AS o
"""

# Stages of the chain between the points where a single storage crosses.
V_ROTOR_CHAIN = """
CREATE VIEW v_rotor_chain AS
SELECT n.profile_id, n.stage, MIN(n.node_id) AS first_node_id, MAX(n.node_id) AS last_node_id,
       CAST(SUM(2 * f.fwd_macs + f.fwd_pointwise_flops) AS BIGINT) AS fwd_flops,
       CAST(SUM(2 * f.bwd_macs + f.bwd_pointwise_flops) AS BIGINT) AS bwd_flops,
       CAST(SUM(s.fwd_tmp_bytes + s.fwd_out_bytes) AS BIGINT) AS saved_bytes,
       CAST(SUM(s.kept_bytes) AS BIGINT) AS kept_bytes,
       MAX(s.fwd_transient_bytes) AS fwd_transient_bytes, MAX(s.bwd_tmp_bytes) AS bwd_tmp_bytes
FROM nodes AS n
JOIN flop_counts AS f ON f.profile_id = n.profile_id AND f.node_id = n.node_id
JOIN mem_stats AS s ON s.profile_id = n.profile_id AND s.node_id = n.node_id
WHERE n.kind NOT IN ('placeholder', 'output')
GROUP BY n.profile_id, n.stage
"""

V_DFGRAPH = """
CREATE VIEW v_dfgraph AS
SELECT n.profile_id, n.node_id, n.name,
       2 * f.fwd_macs + f.fwd_pointwise_flops AS fwd_cost_cpu,
       2 * f.bwd_macs + f.bwd_pointwise_flops AS bwd_cost_cpu,
       s.fwd_out_bytes + s.fwd_tmp_bytes AS fwd_cost_ram, s.bwd_out_bytes AS bwd_cost_ram,
       s.param_bytes
FROM nodes AS n
JOIN flop_counts AS f ON f.profile_id = n.profile_id AND f.node_id = n.node_id
JOIN mem_stats AS s ON s.profile_id = n.profile_id AND s.node_id = n.node_id
WHERE n.kind NOT IN ('placeholder', 'output')
"""

# In the order of creation: a view may read those before it.
VIEWS = (
    MODEL_TOTALS, OPERATOR_TOTALS, MODULE_CALLS, MODULE_TOTALS, MEMORY_TIMELINE, OP_TIMES,
    ACTIVATION_PER_PARAMETER, V_MINIMALLOC, V_MEM_EVENT, V_CHAKRA_NODE, V_ROTOR_CHAIN, V_DFGRAPH,
)  # fmt: skip

# What starting a kernel costs is no published figure; a few microseconds is what is commonly seen.
LAUNCH_OVERHEAD_US = 5
OVERHEAD_SOURCE = "launch overhead: assumed"

# Dense peaks in 10^9 FLOP/s per number format, bandwidth in 10^9 bytes/s, memory in 10^9 bytes: a
# little less than the device really has. float32 is the rate without TF32, as torch computes.
# name, memory, bandwidth, {dtype: peak}, source
DEVICES = (
    ("V100", 32, 900, {"float64": 7800, "float32": 15700, "float16": 125000, "bfloat16": 15700},
     "NVIDIA V100 datasheet (SXM2 32GB); no bfloat16 units: float32's rate"),
    ("A100", 80, 2039, {"float64": 9700, "float32": 19500, "tf32": 156000, "float16": 312000,
                        "bfloat16": 312000},
     "NVIDIA A100 datasheet (SXM 80GB)"),
    ("A100 40GB", 40, 1555, {"float64": 9700, "float32": 19500, "tf32": 156000,
                             "float16": 312000, "bfloat16": 312000},
     "NVIDIA A100 datasheet (SXM 40GB)"),
    ("A10", 24, 600, {"float32": 31200, "tf32": 62500, "float16": 125000, "bfloat16": 125000},
     "NVIDIA A10 datasheet"),
    ("H100", 80, 3350, {"float64": 34000, "float32": 67000, "tf32": 494700, "float16": 989400,
                        "bfloat16": 989400, "float8": 1978900},
     "NVIDIA H100 datasheet (SXM), tensor figures halved: it gives them with sparsity"),
    ("H100 PCIe", 80, 2000, {"float64": 26000, "float32": 51000, "tf32": 378000,
                             "float16": 756000, "bfloat16": 756000, "float8": 1513000},
     "NVIDIA H100 datasheet (PCIe), tensor figures halved: it gives them with sparsity"),
    ("H200", 141, 4800, {"float64": 34000, "float32": 67000, "tf32": 494700, "float16": 989400,
                         "bfloat16": 989400, "float8": 1978900},
     "NVIDIA H200 datasheet (SXM), tensor figures halved: it gives them with sparsity"),
    ("L4", 24, 300, {"float32": 30300, "tf32": 60000, "float16": 121000, "bfloat16": 121000,
                     "float8": 242500},
     "NVIDIA L4 datasheet, tensor figures halved: it gives them with sparsity"),
    ("L40S", 48, 864, {"float32": 91600, "tf32": 183000, "float16": 362050, "bfloat16": 362050,
                       "float8": 733000},
     "NVIDIA L40S datasheet"),
    ("T4", 16, 320, {"float32": 8100, "float16": 65000, "bfloat16": 8100},
     "NVIDIA T4 product brief; no bfloat16 units: float32's rate"),
    ("RTX 3090", 24, 936, {"float32": 35600, "tf32": 35600, "float16": 71000, "bfloat16": 71000},
     "NVIDIA Ampere GA102 whitepaper (float32 accumulation)"),
    ("RTX 4090", 24, 1008, {"float32": 82600, "tf32": 82600, "float16": 165200,
                            "bfloat16": 165200, "float8": 330300},
     "NVIDIA Ada whitepaper (float32 accumulation)"),
    ("MI250X", 128, 3277, {"float64": 47900, "float32": 47900, "float16": 383000,
                           "bfloat16": 383000},
     "AMD Instinct MI250X datasheet (both dies)"),
    ("MI300X", 192, 5300, {"float64": 81700, "float32": 163400, "tf32": 653700,
                           "float16": 1307400, "bfloat16": 1307400, "float8": 2614900},
     "AMD Instinct MI300X datasheet"),
)  # fmt: skip

GIGA = 10**9


def upgrade() -> None:
    """Create the views and add the devices; those that a user has added stay as they are.

    PostgreSQL looks every deleted call up in the tables that name it, so these get an index.
    """
    for sql in VIEWS:
        op.execute(sql)
    if op.get_bind().dialect.name == "postgresql":
        for table, column in (
            ("edges", "src_node_id"),
            ("edges", "dst_node_id"),
            ("saved_tensors", "node_id"),
        ):
            op.create_index(op.f(f"ix_{table}_profile_id_{column}"), table, ["profile_id", column])
    devices = sa.table(
        "devices",
        sa.column("name", sa.Text),
        sa.column("dtype", sa.Text),
        sa.column("peak_flops_per_second", sa.BigInteger),
        sa.column("bandwidth_bytes_per_second", sa.BigInteger),
        sa.column("memory_bytes", sa.BigInteger),
        sa.column("launch_overhead_us", sa.BigInteger),
        sa.column("source", sa.Text),
    )
    known = set(op.get_bind().execute(sa.select(devices.c.name)).scalars())
    rows = [
        {
            "name": name,
            "dtype": dtype,
            "peak_flops_per_second": peak * GIGA,
            "bandwidth_bytes_per_second": bandwidth * GIGA,
            "memory_bytes": memory * GIGA,
            "launch_overhead_us": LAUNCH_OVERHEAD_US,
            "source": f"{source}; {OVERHEAD_SOURCE}",
        }
        for name, memory, bandwidth, peaks, source in DEVICES
        if name not in known
        for dtype, peak in peaks.items()
    ]
    op.bulk_insert(devices, rows)


def downgrade() -> None:
    """Refuse, as every revision does: go back to a copy of the database instead."""
    raise NotImplementedError("schema 0002 is not undone; use a copy made before the upgrade")
