"""Solve x = M x + b for a sparse M >= 0 whose powers vanish, using only NumPy."""

import numpy as np

DENSE = 128
"""Blocks up to this size are solved by elimination."""
_TOLERANCE = 1e-14
_ITERATIONS = 300


def solve_blocks(
    row: np.ndarray, column: np.ndarray, weight: np.ndarray, constant: np.ndarray, block: np.ndarray
) -> np.ndarray:
    """Return the solution float64[n] of x = M x + b.

    Args:
        row: int64[E], the rows of M's entries.
        column: int64[E], their columns, in the same block.
        weight: float64[E], the entries; entries at the same position add up.
        constant: float64[n], b.
        block: int64[n], labels 0, 1, 2, ... of independent blocks. Blocks are solved separately, so that none changes
            the rounding of another.
    """
    solution = np.empty(len(constant))
    members, begins = _sorted_by(block)
    entries, edges = _sorted_by(block[row], len(begins) - 1)
    place = np.empty(len(constant), dtype=np.int64)
    place[members] = np.arange(len(constant)) - begins[block[members]]
    for number in range(len(begins) - 1):
        block_members = members[begins[number] : begins[number + 1]]
        inside = entries[edges[number] : edges[number + 1]]
        solution[block_members] = _solve(
            place[row[inside]], place[column[inside]], weight[inside], constant[block_members]
        )
    return solution


def _sorted_by(label: np.ndarray, count: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices sorted by label, and the start of each label plus the end of the last."""
    order = np.argsort(label, kind="stable")
    return order, np.append(0, np.cumsum(np.bincount(label, minlength=count or 0)))


def _solve(row: np.ndarray, column: np.ndarray, weight: np.ndarray, constant: np.ndarray) -> np.ndarray:
    size = len(constant)
    if size > DENSE:
        # Scale each row by 1 - M_ii: states that mostly stay in place would slow the iteration down.
        diagonal = row == column
        remains = 1.0 - np.bincount(row, weights=weight * diagonal, minlength=size)
        off_diagonal = row[~diagonal], column[~diagonal], weight[~diagonal] / remains[row[~diagonal]]
        solution = _iterate(*off_diagonal, constant / remains)
        if solution is not None:
            return solution
    matrix = np.eye(size)
    # `.at` adds up entries with the same row and column.
    np.subtract.at(matrix, (row, column), weight)
    return np.linalg.solve(matrix, constant)


def _iterate(row: np.ndarray, column: np.ndarray, weight: np.ndarray, constant: np.ndarray) -> np.ndarray | None:
    """Solve by BiCGSTAB (van der Vorst, 1992), with two products by M per step. Return None without convergence."""
    size = len(constant)

    def apply(x: np.ndarray) -> np.ndarray:
        return x - np.bincount(row, weights=weight * x[column], minlength=size)

    solution, residual = np.zeros(size), constant.copy()
    goal = _TOLERANCE * np.abs(constant).max(initial=0.0)
    shadow = direction = residual.copy()
    product = residual @ shadow
    for _ in range(_ITERATIONS):
        if np.abs(residual).max() <= goal:
            # The recursive residual drifts by rounding: check the true one, and restart from it if it is too large.
            residual = constant - apply(solution)
            if np.abs(residual).max() <= 4 * goal:
                return solution
            shadow = direction = residual.copy()
            product = residual @ shadow
        moved = apply(direction)
        across = moved @ shadow
        # Breakdown of the method: the caller falls back to elimination.
        if across == 0.0 or product == 0.0:
            return None
        step = product / across
        half = residual - step * moved
        turned = apply(half)
        square = turned @ turned
        length = (turned @ half) / square if square else 0.0
        solution = solution + step * direction + length * half
        residual = half - length * turned
        previous, product = product, residual @ shadow
        if length:
            direction = residual + (product / previous) * (step / length) * (direction - length * moved)
    return None
