"""Dense factorisations and Fourier transforms: the textbook's leading terms, as pointwise_flops.

They are not contractions in the sense of ``macs``: their counts are of single operations, after
LAPACK Working Note 41 (appendix C) and Golub and Van Loan, Matrix Computations.
A complex operation counts as four real ones. Divisions round down.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import torch

from exporter.formulas.operands import (
    Args,
    Kwargs,
    Outputs,
    argument,
    ceil_log2,
    dtype_factor,
    result,
)
from exporter.formulas.registry import register

if TYPE_CHECKING:
    from exporter.formulas.spec import TensorSpec

aten = torch.ops.aten


def _each(matrix: TensorSpec) -> int:
    """Matrices in a batch x real operations per operation."""
    return prod(matrix.shape[:-2]) * dtype_factor(matrix, matrix)


@register(aten.linalg_cholesky_ex, aten.linalg_cholesky, aten.linalg_ldl_factor_ex,
          aten.linalg_ldl_factor, counts="pointwise_flops")  # fmt: skip
def cholesky_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """n^3 / 3. Source: LAPACK Working Note 41, potrf; sytrf."""
    return _each(args[0]) * int(args[0].shape[-1]) ** 3 // 3


@register(aten.cholesky_inverse, counts="pointwise_flops")
def cholesky_inverse_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """2 n^3 / 3. Source: LAPACK Working Note 41, potri."""
    return _each(args[0]) * 2 * int(args[0].shape[-1]) ** 3 // 3


@register(
    aten.linalg_lu_factor_ex, aten.linalg_lu_factor, aten.linalg_lu, aten._lu_with_info,
    aten._linalg_det, aten._linalg_slogdet, aten.linalg_det, aten.linalg_slogdet, aten.det,
    aten.slogdet, aten.logdet,
    counts="pointwise_flops",
)  # fmt: skip
def lu_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """2 m n k - (m + n) k^2 + 2 k^3 / 3 for k = min(m, n), which is 2 n^3 / 3 if square.

    Step i of k updates (m - i) (n - i) elements by a product and a difference.
    Source: LAPACK Working Note 41, getrf.
    """
    m, n = args[0].shape[-2:]
    k = min(m, n)
    return int(_each(args[0]) * (6 * m * n * k - 3 * (m + n) * k**2 + 2 * k**3) // 3)


@register(aten.linalg_inv_ex, aten.linalg_inv, aten.inverse, counts="pointwise_flops")
def inverse_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """2 n^3: 2/3 for the factorisation, 4/3 for the inverse.

    Source: LAPACK Working Note 41, getrf and getri.
    """
    return _each(args[0]) * 2 * int(args[0].shape[-1]) ** 3


def _solved(matrix: TensorSpec, output: TensorSpec) -> int:
    """Elements of the solution x n x real operations per operation."""
    return output.numel * matrix.shape[-1] * dtype_factor(matrix, matrix)


@register(aten._linalg_solve_ex, aten.linalg_solve_ex, aten.linalg_solve, counts="pointwise_flops")
def solve_flops(args: Args, _kwargs: Kwargs, outputs: Outputs) -> int:
    """2 n^3 / 3 for the factorisation, 2 n^2 per right-hand side.

    Source: LAPACK Working Note 41, gesv.
    """
    matrix = args[0]
    n = int(matrix.shape[-1])
    return _each(matrix) * 2 * n**3 // 3 + 2 * _solved(matrix, result(outputs))


@register(aten.linalg_lu_solve, aten.linalg_ldl_solve, counts="pointwise_flops")
def factored_solve_flops(args: Args, _kwargs: Kwargs, outputs: Outputs) -> int:
    """2 n^2 per right-hand side. Source: LAPACK Working Note 41, getrs."""
    return 2 * _solved(args[0], result(outputs))


@register(aten.cholesky_solve, aten._cholesky_solve_helper, aten.lu_solve, counts="pointwise_flops")
def cholesky_solve_flops(args: Args, _kwargs: Kwargs, outputs: Outputs) -> int:
    """2 n^2 per right-hand side. Source: LAPACK Working Note 41, potrs."""
    return 2 * _solved(args[1], result(outputs))


@register(aten.linalg_solve_triangular, counts="pointwise_flops")
def triangular_flops(args: Args, _kwargs: Kwargs, outputs: Outputs) -> int:
    """n^2 per right-hand side. Source: LAPACK Working Note 41, trtrs."""
    return _solved(args[0], result(outputs))


@register(aten.triangular_solve, counts="pointwise_flops")
def triangular_solve_flops(args: Args, _kwargs: Kwargs, outputs: Outputs) -> int:
    """n^2 per right-hand side. Source: LAPACK Working Note 41, trtrs."""
    return _solved(args[1], result(outputs))


def _geqrf(m: int, n: int) -> int:
    k = min(m, n)
    # 2 m n^2 - 2 n^3 / 3 for m >= n
    return (6 * m * n * k - 3 * (m + n) * k**2 + 2 * k**3) * 2 // 3


def _orgqr(m: int, n: int, k: int) -> int:
    return (12 * m * n * k - 6 * (m + n) * k**2 + 4 * k**3) // 3


@register(aten.geqrf, counts="pointwise_flops")
def geqrf_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """2 m n^2 - 2 n^3 / 3 for m >= n, sides exchanged otherwise.

    Source: LAPACK Working Note 41, geqrf.
    """
    m, n = args[0].shape[-2:]
    return _each(args[0]) * _geqrf(m, n)


@register(aten.linalg_qr, counts="pointwise_flops")
def qr_flops(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
    """As geqrf, and as orgqr for the columns of Q that are asked for.

    Source: LAPACK Working Note 41, geqrf and orgqr.
    """
    m, n = args[0].shape[-2:]
    mode = argument(args, kwargs, 1, "mode", "reduced")
    k = min(m, n)
    columns = {"reduced": k, "complete": m, "r": 0}[mode]
    return _each(args[0]) * (_geqrf(m, n) + (_orgqr(m, columns, k) if columns else 0))


@register(aten.linalg_householder_product, aten.orgqr, counts="pointwise_flops")
def orgqr_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """4 m n k - 2 (m + n) k^2 + 4 k^3 / 3, k reflectors. Source: LAPACK Working Note 41, orgqr."""
    m, n = args[0].shape[-2:]
    return _each(args[0]) * _orgqr(m, n, args[1].shape[-1])


@register(aten.ormqr, counts="pointwise_flops")
def ormqr_flops(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
    """4 m n k - 2 n k^2 from the left, 4 m n k - 2 m k^2 from the right, k reflectors.

    Source: LAPACK Working Note 41, ormqr.
    """
    other = args[2]
    m, n = other.shape[-2:]
    k = args[1].shape[-1]
    side = n if argument(args, kwargs, 3, "left", True) else m
    return int(_each(other) * (4 * m * n * k - 2 * side * k**2))


@register(aten._linalg_svd, aten.linalg_svd, aten.svd, counts="pointwise_flops")
def svd_flops(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
    """14 m n^2 + 8 n^3 with vectors, 4 m n^2 - 4 n^3 / 3 without, n the smaller side.

    Source: Golub and Van Loan, table of Golub-Reinsch counts.
    """
    n, m = sorted(args[0].shape[-2:])
    if argument(args, kwargs, 2, "compute_uv", True):
        return int(_each(args[0]) * (14 * m * n**2 + 8 * n**3))
    return int(_each(args[0]) * ((12 * m * n**2 - 4 * n**3) // 3))


@register(aten.linalg_svdvals, counts="pointwise_flops")
def svdvals_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """4 m n^2 - 4 n^3 / 3, n the smaller side. Source: as for the singular value decomposition."""
    return svd_flops(args[:1], {"compute_uv": False}, ())


@register(aten._linalg_eigh, aten.linalg_eigh, counts="pointwise_flops")
def eigh_flops(args: Args, kwargs: Kwargs, _outputs: Outputs) -> int:
    """9 n^3 with vectors, 4 n^3 / 3 without.

    Source: Golub and Van Loan, symmetric QR algorithm.
    """
    n = int(args[0].shape[-1])
    vectors = argument(args, kwargs, 2, "compute_v", True)
    return _each(args[0]) * (9 * n**3 if vectors else 4 * n**3 // 3)


@register(aten.linalg_eigvalsh, counts="pointwise_flops")
def eigvalsh_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """4 n^3 / 3. Source: Golub and Van Loan, symmetric QR algorithm, values alone."""
    return eigh_flops(args[:1], {"compute_v": False}, ())


@register(aten.linalg_lstsq, counts="pointwise_flops")
def least_squares_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """As geqrf, and 4 m n - n^2 per right-hand side, n the smaller side.

    Those are the product with Q and a triangular solve, whichever driver runs.
    Source: LAPACK Working Note 41, geqrf, ormqr and trtrs.
    """
    m, n = args[0].shape[-2:]
    k = min(m, n)
    columns = args[1].shape[-1] if len(args[1].shape) == len(args[0].shape) else 1
    return int(_each(args[0]) * (_geqrf(m, n) + columns * (4 * m * n - k**2)))


@register(aten.linalg_eig, counts="pointwise_flops")
def eig_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """25 n^3. Source: Golub and Van Loan, unsymmetric QR algorithm with vectors."""
    return _each(args[0]) * 25 * int(args[0].shape[-1]) ** 3


@register(aten.linalg_eigvals, aten._linalg_eigvals, counts="pointwise_flops")
def eigvals_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """10 n^3. Source: Golub and Van Loan, unsymmetric QR algorithm, values alone."""
    return _each(args[0]) * 10 * int(args[0].shape[-1]) ** 3


def _fft(shape: tuple[int, ...], dims: tuple[int, ...]) -> int:
    """Return 5 N log2 N over the dimensions, x batch; log2 rounds up to whole passes."""
    return 5 * prod(shape) * sum(ceil_log2(shape[d]) for d in dims)


@register(aten._fft_c2c, counts="pointwise_flops")
def fft_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """5 N log2 N per transform of N points, log2 rounded up.

    Source: the radix-2 count that FFTW's benchmarks use.
    """
    return _fft(args[0].shape, args[1])


@register(aten._fft_r2c, counts="pointwise_flops")
def real_fft_flops(args: Args, _kwargs: Kwargs, _outputs: Outputs) -> int:
    """5/2 N log2 N per transform of N real points. Source: as for the complex transform."""
    return _fft(args[0].shape, args[1]) // 2


@register(aten._fft_c2r, counts="pointwise_flops")
def inverse_real_fft_flops(args: Args, _kwargs: Kwargs, outputs: Outputs) -> int:
    """5/2 N log2 N per transform to N real points. Source: as for the complex transform."""
    return _fft(result(outputs).shape, args[1]) // 2
