// The CPU kernels, one table for each instruction set.
//
// Every file that defines a kernel is compiled once for each instruction set with KPOP_ISA naming it, and puts its
// functions into namespace kpop::cpu::KPOP_ISA. Such files include no header with inline functions of external
// linkage: the linker would keep one copy of each, perhaps one with instructions that this processor lacks.
#pragma once
#include <cstdint>

#include "common/blocks.h"

namespace kpop::cpu {

// Scalars of one Adam step; the corrections are 1 / (1 - beta^t).
struct AdamStep {
  float beta1, one_minus_beta1, beta2, one_minus_beta2;
  float correction1, correction2, eps, sign;
};

struct Decay {
  float beta, one_minus_beta;
};

// Scalars of one Adam step on 8-bit moments; `limit` bounds the normalized update.
struct Adam8Step {
  AdamStep adam;
  float lr, decay, limit;
};

// Tensors in blocks of one size. Their parts are shared out to threads as if they were one.
struct BlockItems {
  const BlockItem* items;
  int64_t count;
  int64_t block_size;
};

// What the random numbers of all tensors of a list have in common.
struct RandomKey {
  uint64_t seed;
  uint32_t step;
};

// One factor of a product, contiguous: (depth, n) if depth_major, else (n, depth).
struct Operand {
  const float* data;
  bool depth_major;
};

// One product known to be symmetric: n x n, with inner dimension k. C may be `out`; it is not read when beta is 0.
struct SymmetricItem {
  Operand A, B;
  const float* C;
  float* out;
  int64_t n, k;
  float alpha;
};

// Cubics a x + b x³, (a, b) for each step.
struct Schedule {
  const float* coefficients;
  int steps;
};

// A schedule for spectra that lie in [least, 1] of their bound.
struct BoundedSchedule {
  float least;
  Schedule schedule;
};

// Of `shorter`, from fewer to more steps, the first that is proved to serve a matrix replaces `schedule`.
struct RootOptions {
  int p;
  float damping, relative_damping;
  Schedule schedule, second_stage;
  const BoundedSchedule* shorter;
  int shorter_count;
};

// One n x n matrix, contiguous, and where its root and the bound of its spectrum go. A matrix that would take more
// than `most_steps` is left to another method, and its bound is negative.
struct RootItem {
  const float* A;
  float* out;
  float* bound;
  int64_t n;
  int64_t most_steps;
};

// One step of Adam in a rotated basis: m x n tensors, contiguous, and a basis of each side; null is the identity. The
// corrections are 1 / (1 - beta^t) of its own step.
struct KronAdamItem {
  float* param;
  const float* grad;
  float *exp_avg, *exp_avg_sq;
  const float *left, *right;
  int64_t rows, cols;
  float correction1, correction2;
};

// What becomes of normalized updates: within +-limit, and the parameter <- decay param - lr update.
struct KronUpdate {
  float lr, decay, limit;
};

// One matrix between two factors, at least one of which is there, and how it enters `out`.
struct TwoSidedItem {
  const float* G;
  const float *left, *right;
  float* out;
  int64_t rows, cols;
  float keep, weight;
};

// One step of Adam with 8-bit moments in rotated bases: `count` matrices as one tensor in blocks, whose `x` is the
// gradient and whose `out` is the parameter, both in float32. Each matrix has factors of its own, or shares one; null is
// the identity. The step number and the corrections are its own.
struct KronAdam8Item {
  BlockItem blocks;
  const float *left, *right;
  int64_t count, rows, cols;
  bool left_each, right_each;
  float correction1, correction2;
  uint32_t step;
};

// One Kronecker factor S and the rows x cols gradient G that it averages: S of the rows and P of the columns, or with
// `of_columns` the reverse. P is the root of the other factor; null is the identity.
struct KlFactorItem {
  float* S;
  const float *G, *P;
  int64_t rows, cols;
  bool of_columns;
};

// A rows x cols matrix `whole` in bases U_L, rows x left_rank, and U_R, cols x right_rank, and its parts: main in both, A
// in the right one, B in the left one, C in neither. All contiguous. A lift goes to `lifted`; null parts are zero.
struct BlockParts {
  const float* whole;
  float* lifted;
  const float *U_L, *U_R;
  float *main, *A, *B, *C;
  int64_t rows, cols, left_rank, right_rank;
};

// One n x n matrix, contiguous, its basis so far, and where the new basis, its eigenvalues, the change Q'ᵀ Q and whether
// the old basis was kept for a failure go.
struct BasisItem {
  const float *S, *old;
  float *Q, *eigvals, *P;
  bool* failed;
  int64_t n;
};

// What LAPACK found for a matrix: eigenvectors in rows, and rising eigenvalues.
struct Eigenpairs {
  const float *vectors, *values;
};

struct Kernels {
  const char* name;

  // m <- beta1 m + (1 - beta1) sign g;  v <- beta2 v + (1 - beta2) g g;
  // g <- (m correction1) / (sqrt(v correction2) + eps).  All contiguous, `count` elements.
  // Moves 12 bytes in and 12 bytes out for each element.
  void (*adam)(float* g, float* m, float* v, int64_t count, const AdamStep& step, int threads);

  // The rotated gradient, both moments, N = (m correction1) / (sqrt(v correction2) + eps), and the parameter moved along
  // N rotated back. The corrections of `step` are not used.
  void (*kron_adam)(const KronAdamItem* items, int64_t count, const AdamStep& step, const KronUpdate& update,
                    int threads);

  // out <- keep out + weight left G right, with either factor transposed if that is said. Of `out` nothing is read when
  // `keep` is 0.
  void (*two_sided)(const TwoSidedItem* items, int64_t count, bool left_transposed, bool right_transposed, int threads);

  // Blocks of 8 bits: common/rounding.h and common/codebook.h define the bits. Bytes moved for each element from and
  // to float32: 5 to quantize or restore, 10 to average (the average is written too), 16 for a step of Adam.
  void (*quantize_int8)(BlockItems items, AffineOptions options, RandomKey key, int threads);
  void (*dequantize_int8)(BlockItems items, int threads);
  void (*quantize_dynamic8)(BlockItems items, bool is_signed, int threads);
  void (*dequantize_dynamic8)(BlockItems items, bool is_signed, int threads);

  // m <- beta m + (1 - beta) x in float32 to `out`, rounded stochastically into the affine codes.
  void (*ema_int8)(BlockItems items, Decay decay, RandomKey key, int threads);

  // v <- beta v + (1 - beta) x x in float32 to `out`, its nearest codes into the dynamic codes.
  void (*ema_sq_dynamic8)(BlockItems items, Decay decay, int threads);

  // `out` is the parameter and `x` its gradient.
  void (*adam8)(BlockItems items, const Adam8Step& step, RandomKey key, int threads);

  // As kron_adam, with the averages and codes of adam8. With `original` the first moment is that of the gradient as it
  // is, and is rotated in float32. The corrections of `step` are not used.
  void (*kron_adam8)(const KronAdam8Item* items, int64_t count, int64_t block_size, const Adam8Step& step,
                     bool original, uint64_t seed, int threads);

  // float32 to bfloat16; there are no blocks.
  void (*stochastic_round)(BlockItems items, RandomKey key, int threads);

  // out <- alpha A B + beta C. Of C the lower triangles are read.
  void (*symmetric_products)(const SymmetricItem* items, int64_t count, float beta, int threads);

  // S <- beta S + (1 - beta) / depth Y Yᵀ + eps I, symmetric, where Y is G P, or (P G)ᵀ of the columns, and has `depth`
  // columns. Of S the lower triangle is read; nothing is when beta is 0.
  void (*kl_factors)(const KlFactorItem* items, int64_t count, Decay decay, float eps, int threads);

  // The parts of matrices of one size, and X <- beta X + alpha (U_L main U_Rᵀ + A U_Rᵀ + U_L B + C).
  void (*block_project)(const BlockParts* items, int64_t count, int threads);
  void (*block_lift)(const BlockParts* items, int64_t count, float alpha, float beta, int threads);

  // out <- (A + delta I)^(-1/p) for symmetric positive semidefinite matrices of any sizes.
  void (*inverse_root)(const RootItem* items, int64_t count, const RootOptions& options, int threads);

  // out <- (A + delta I) / bound, symmetric, for the other ways to a root: its spectrum lies in [0, 1). Zero where
  // the bound is, NaN where A holds one.
  void (*normalize)(const RootItem* items, int64_t count, const RootOptions& options, int threads);

  // One step of orthogonal iteration; new columns are at the places of the old ones, or by falling eigenvalue.
  void (*refresh_eigenbasis)(const BasisItem* items, int64_t count, bool sort, int threads);

  // Q <- S times a power of two, of mean diagonal about 1, plus shift I; the identity where there is nothing to decompose.
  void (*prepare_eigenbasis)(const BasisItem* items, int64_t count, float shift, int threads);

  // The basis from the eigenpairs of what was prepared, by falling eigenvalue if that is asked, else rising.
  void (*take_eigenbasis)(const BasisItem* items, const Eigenpairs* found, int64_t count, float shift, bool sort,
                          int threads);
};

namespace baseline { extern const Kernels kernels; }
namespace avx2 { extern const Kernels kernels; }
namespace avx512 { extern const Kernels kernels; }

// The table of an instruction set, or nullptr when this build or this processor has none of that name.
const Kernels* find_kernels(const char* name);

// The fastest table that this processor runs.
const Kernels& best_kernels();

// The size of the last cache before memory. Results beyond it are better stored around the caches.
int64_t last_level_cache_bytes();

}  // namespace kpop::cpu
