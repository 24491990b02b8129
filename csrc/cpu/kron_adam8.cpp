// Adam with 8-bit moments between two products with a factor on each side. A block of the flattened tensor may run
// across rows and matrices, so that the rotated gradient lies row after row between the products and the pass over
// blocks, which makes N of it in its place. One tensor at a time: what lies between stays in the cache where it fits.
#include "adam8_block.h"
#include "sandwich.h"
#include "spans.h"

namespace kpop::cpu::KPOP_ISA {
namespace {

struct Options {
  int64_t block_size;
  Adam8Step step;
  bool original;
  uint64_t seed;
};

int64_t lines(int64_t floats) { return (floats + 15) / 16 * 16; }

bool is_rotated(const KronAdam8Item& item) { return item.left || item.right; }

// A team shares the products of a matrix, unless there is a matrix for each member.
bool shares_products(const KronAdam8Item& item, int members) { return item.count < members; }

// The workspace of an item: the rotated gradient, the first moment if it is to be rotated, and panels.
struct Room {
  float *rotated, *first, *panels;
};

Room room(const KronAdam8Item& item, bool original, float* memory) {
  const int64_t floats = lines(item.blocks.count);
  return {memory, memory + floats, memory + (original ? 2 : 1) * floats};
}

int64_t room_floats(const KronAdam8Item& item, bool original, int members) {
  if (!is_rotated(item)) return 0;
  const int64_t buffers = shares_products(item, members) ? 1 : members;
  return (original ? 2 : 1) * lines(item.blocks.count) + buffers * buffer_floats(item.rows, item.cols);
}

// out <- keep out + weight X rotated, or rotated back, for every matrix of an item; X may be `out`.
void rotate(const KronAdam8Item& item, const float* X, bool back, float* out, float keep, float weight, float* panels,
            Team team) {
  const int64_t m = item.rows, n = item.cols;
  const bool shared = shares_products(item, team.size);
  const Team members = shared ? team : Team{};
  if (!shared) panels += team.rank * buffer_floats(m, n);
  for (int64_t i = shared ? 0 : team.rank; i < item.count; i += shared ? 1 : team.size) {
    const float* left = item.left && item.left_each ? item.left + i * m * m : item.left;
    const float* right = item.right && item.right_each ? item.right + i * n * n : item.right;
    const TwoSidedItem matrix{X + i * m * n, left, right, out + i * m * n, m, n, keep, weight};
    multiply_both_sides(matrix, !back, back, panels, members);
    members.wait();
  }
  team.wait();
}

// The part of a tensor that a member of a team takes, which begins with a span.
struct Part {
  int64_t begin, end;
};

Part part(int64_t count, int64_t span, Team team) {
  const int64_t spans = (count + span - 1) / span;
  return {spans * team.rank / team.size * span, smaller(spans * (team.rank + 1) / team.size * span, count)};
}

// W <- decay W - lr N; nothing is read when `decay` is 0.
void move_or_set(float* W, const float* m, const float* v, int64_t n, Normalize normalize, float lr, float decay) {
  if (decay != 0) return move(W, m, v, n, normalize, lr, decay);
  for (int64_t i = 0; i < n; ++i) W[i] = -lr * normalize(m[i], v[i]);
}

// Averages the moments of all blocks and hands both, in float32, to use(first, n, m, v).
template <class Use>
KPOP_INLINE void average_blocks(const KronAdam8Item& item, const Options& options, const float* rotated, Team team,
                                const Use& use) {
  const DynamicMap& map = dynamic_map(false);
  const AdamStep s = options.step.adam;
  const float* gradient = rotated && !options.original ? rotated : static_cast<const float*>(item.blocks.x.data);
  const float* squared = rotated ? rotated : gradient;
  const RandomKey key{options.seed, item.step};
  const Part own = part(item.blocks.count, span_size(options.block_size), team);
  visit_random_blocks(item.blocks, own.begin, own.end, options.block_size, &key,
                      [&](int64_t block, int64_t first, int64_t n, const uint16_t* random) {
                        alignas(64) float x[LARGEST_BLOCK], m[LARGEST_BLOCK], v[LARGEST_BLOCK];
                        average_block(map, item.blocks, block, first, n, downhill(gradient + first, n, s.sign, x),
                                      squared + first, s, random, m, v);
                        use(first, n, m, v);
                      });
}

void step_item(const KronAdam8Item& item, const Options& options, float* memory, Team team) {
  const Adam8Step& s = options.step;
  const Normalize normalize{item.correction1, item.correction2, s.adam.eps, s.limit};
  const bool rotated = is_rotated(item), original = rotated && options.original;
  const Room use = rotated ? room(item, original, memory) : Room{};
  float *N = use.rotated, *first_moment = use.first, *param = static_cast<float*>(item.blocks.out.data);
  if (rotated) rotate(item, static_cast<const float*>(item.blocks.x.data), false, N, 0, 1, use.panels, team);
  average_blocks(item, options, rotated ? N : nullptr, team,
                 [=](int64_t first, int64_t n, const float* m, const float* v) {
                   if (!rotated) return move_or_set(param + first, m, v, n, normalize, s.lr, s.decay);
                   if (!original) return move_or_set(N + first, m, v, n, normalize, -1, 0);
                   memcpy(first_moment + first, m, static_cast<size_t>(n) * sizeof(float));
                   memcpy(N + first, v, static_cast<size_t>(n) * sizeof(float));
                 });
  team.wait();
  if (original) {
    rotate(item, first_moment, false, first_moment, 0, 1, use.panels, team);
    const Part own = part(item.blocks.count, 1, team);
    for (int64_t i = own.begin; i < own.end; ++i) N[i] = normalize(first_moment[i], N[i]);
    team.wait();
  }
  if (rotated) rotate(item, N, true, param, s.decay, -s.lr, use.panels, team);
}

}  // namespace

void kron_adam8(const KronAdam8Item* items, int64_t count, int64_t block_size, const Adam8Step& step, bool original,
                uint64_t seed, int threads) {
  const Options options{block_size, step, original, seed};
  int64_t floats = 0;
  for (int64_t i = 0; i < count; ++i)
    floats = larger(floats, room_floats(items[i], original, count < threads ? threads : 1));
  for_each_item(count, floats, threads, [=](int64_t i, float* memory, Team team) {
    step_item(items[i], options, memory, team);
  });
}

}  // namespace kpop::cpu::KPOP_ISA
