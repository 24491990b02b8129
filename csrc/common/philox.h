// Philox-4x32-10, and the 16 random bits of an element.
//
// Element e of a tensor owns entry e & 7 of the call with counter (low and high word of e >> 3, step, stream) and key
// `seed`, the four output words read as eight 16-bit numbers, low half first.
#pragma once
#include "portable.h"

namespace kpop {

constexpr uint32_t PHILOX_MULTIPLIER_0 = 0xD2511F53;
constexpr uint32_t PHILOX_MULTIPLIER_1 = 0xCD9E8D57;
constexpr uint32_t PHILOX_WEYL_0 = 0x9E3779B9;
constexpr uint32_t PHILOX_WEYL_1 = 0xBB67AE85;
constexpr int PHILOX_ROUNDS = 10;

struct Philox4 {
  uint32_t word[4];
};

// The key of each round, which does not change from call to call.
struct PhiloxKeys {
  uint32_t k0[PHILOX_ROUNDS], k1[PHILOX_ROUNDS];
};

KPOP_HOST_DEVICE PhiloxKeys philox_keys(uint64_t key) {
  PhiloxKeys keys = {};
  keys.k0[0] = static_cast<uint32_t>(key);
  keys.k1[0] = static_cast<uint32_t>(key >> 32);
  for (int round = 1; round < PHILOX_ROUNDS; ++round) {
    keys.k0[round] = keys.k0[round - 1] + PHILOX_WEYL_0;
    keys.k1[round] = keys.k1[round - 1] + PHILOX_WEYL_1;
  }
  return keys;
}

KPOP_HOST_DEVICE Philox4 philox4(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, const PhiloxKeys& keys) {
  for (int round = 0; round < PHILOX_ROUNDS; ++round) {
    const uint64_t p0 = uint64_t{PHILOX_MULTIPLIER_0} * c0;
    const uint64_t p1 = uint64_t{PHILOX_MULTIPLIER_1} * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ keys.k0[round];
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ keys.k1[round];
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
  }
  return {{c0, c1, c2, c3}};
}

KPOP_HOST_DEVICE uint32_t philox_entry(const Philox4& words, int entry) {
  return words.word[entry >> 1] >> (16 * (entry & 1)) & 0xFFFF;
}

}  // namespace kpop
