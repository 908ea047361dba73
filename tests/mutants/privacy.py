"""What reports may reveal: certificates, samplers, random order, and the bounds of shuffled reports."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    # Certificates
    Mutant(
        "ldpsql/privacy/certificate.py",
        "        if type(channel) is not UndrawnChannel:",
        "        if False:",
        "a mechanism without a claim may have a channel that draws",
        "tests/test_not_private.py::test_a_mechanism_without_a_claim_whose_channel_draws_is_refused",
    ),
    Mutant(
        "ldpsql/privacy/certificate.py",
        "        if isinstance(self.claimed, NoClaim):",
        "        if False:",
        "a ledger takes no claim for one",
        "tests/test_not_private.py::test_python_and_commands_draw_nothing_charge_nothing_and_leave_nothing",
    ),
    Mutant(
        "ldpsql/channels/undrawn.py",
        "        raise estimates_only()",
        "        return np.zeros(len(values), dtype=np.int32)",
        "a channel for estimates gives reports",
        "tests/test_not_private.py::test_sql_draws_nothing",
    ),
    Mutant(
        "ldpsql/privacy/certificate.py",
        "if witness.ratio > limit:",
        "if witness.ratio > limit * Fraction(1 + (1 << 50), 1 << 50):",
        "a ratio a little above its claim is certified",
        "tests/test_certificates.py::test_a_ratio_is_certified_to_one_unit_of_its_weights",
    ),
    Mutant(
        "ldpsql/privacy/certificate.py",
        "    if not channel.draws_its_weights():",
        "    if False:",
        "a sampler whose tables have other weights is certified",
        "tests/test_hostile_plugins.py::test_what_was_put_on_the_objects_before_the_certificate_is_not_taken_over",
    ),
    Mutant(
        "ldpsql/privacy/certificate.py",
        "if int(kept[x, y]) * limit.denominator > limit.numerator * int(kept[near, y]):",
        "if False:",
        "no whole numbers decide about a claim on a metric",
        "tests/test_hostile_plugins.py::test_what_is_not_exactly_of_the_core_is_refused",
    ),
    Mutant(
        "ldpsql/privacy/certificate.py",
        "    if delta > claim.delta:",
        "    if delta > claim.delta * Fraction(1001, 1000):",
        "a delta a thousandth above the claim is certified",
        "tests/test_certificates.py::test_a_delta_is_certified_to_one_unit",
    ),
    Mutant(
        "ldpsql/privacy/certificate.py",
        "sum(max(0, a * d - n * b) for a, b in",
        "max(max(0, a * d - n * b) for a, b in",
        "the delta of one report is taken for that of all",
        "tests/test_certificates.py::test_a_delta_is_certified_to_one_unit",
    ),
    Mutant(
        "ldpsql/privacy/certificate.py",
        "ratio = prod(ratios, start=Fraction(1)) if",
        "ratio = max(ratios, default=Fraction(1)) if",
        "the epsilons of the columns of a row do not add up",
        "tests/test_rows.py::test_the_certificate_is_that_of_the_product_channel_by_enumeration",
    ),
    Mutant(
        "ldpsql/privacy/certificate.py",
        "tight = max(parts, key=lambda part: part.epsilon)",
        "tight = min(parts, key=lambda part: part.epsilon)",
        "one column of several states the smallest epsilon of all",
        "tests/test_certificates.py::test_one_column_of_several_keeps_the_largest_epsilon_of_all",
    ),
    Mutant(
        "ldpsql/privacy/planar.py",
        "                if left < 0 or not self._keeps(int(n), m, exponent):\n                    return False",
        "                if left < 0 or not self._keeps(int(n), m, exponent):\n                    continue",
        "far points of noise on the plane may differ by more than the claim",
        "tests/test_maps.py::test_noise_that_falls_too_fast_over_more_than_one_cell_is_refused",
    ),
    # Samplers
    Mutant(
        "ldpsql/channels/keep_or_spread.py",
        "steps = word // np.uint64(self.spread)",
        "steps = (word - np.uint64(1)) // np.uint64(self.spread)",
        "k-RR draws one word in 2**64 for the wrong value",
        "tests/test_channels.py::test_the_keep_or_spread_sampler_is_its_channel_over_all_words",
    ),
    Mutant(
        "ldpsql/channels/keep_or_spread.py",
        "self.each & (1 << self._further) - 1), np.uint64(self.last)",
        "self.each & (1 << self._further) - 1 | 1), np.uint64(self.last)",
        "k-RR of many rows draws with a weight that is one too large",
        "tests/test_channels.py::test_draws_that_share_words_have_exactly_the_weights_of_the_channel",
    ),
    Mutant(
        "ldpsql/channels/dense.py",
        "(word << np.uint64(self.bits)) < (entry & ~low), column, other",
        "(word << np.uint64(self.bits)) <= (entry & ~low), column, other",
        "tables of any channel draw one word in 2**64 for the wrong report",
        "tests/test_channels.py::test_alias_tables_give_the_weights_back_and_draw_them",
    ),
    Mutant(
        "ldpsql/channels/bits.py",
        "kept = (words(len(values)) < np.uint64(self.own)",
        "kept = (words(len(values)) <= np.uint64(self.own)",
        "the own bit of unary encodings is set for one word in 2**64 too many",
        "tests/test_channels.py::test_the_own_bit_is_set_by_exactly_as_many_words_as_its_weight",
    ),
    Mutant(
        "ldpsql/channels/bits.py",
        "range((weight & -weight).bit_length() - 1, 64)",
        "range((weight & -weight).bit_length(), 64)",
        "other bits of unary encodings have a chance without its last digit",
        "tests/test_structures.py::test_independent_bits_are_their_weights_over_all_bit_strings",
    ),
    Mutant(
        "ldpsql/channels/hadamard.py",
        "    if len(tied):",
        "    if False:",
        "subsets with equal keys have more values than chosen",
        "tests/test_channels.py::test_subsets_whose_keys_are_equal_are_drawn_again",
    ),
    Mutant(
        "ldpsql/channels/hashed.py",
        "seeds = np.minimum(steps, np.uint64(self.seeds - 1)).astype(np.int32)",
        "seeds = np.minimum(steps, np.uint64(self.seeds - 2)).astype(np.int32)",
        "the last function of a hash is never drawn",
        "tests/test_large_domains.py::test_every_function_is_drawn_equally_often",
    ),
    Mutant(
        "ldpsql/channels/convolution.py",
        "        return np.clip(noise, 0, self.outputs - 1, out=noise)",
        "        return np.clip(noise, 1, self.outputs - 1, out=noise)",
        "noise is never cut to the lowest report",
        "tests/test_channels.py::test_a_million_draws_follow_the_channel",
    ),
    Mutant(
        "ldpsql/channels/plane.py",
        "np.clip(down, 0, self._rows - 1, out=down)",
        "np.clip(down, 0, self._rows - 2, out=down)",
        "no report is in the last row of a map",
        "tests/test_maps.py::test_the_sampler_moves_every_value_by_its_weights",
    ),
    Mutant(
        "ldpsql/channels/levels.py",
        "whole = halves[unsure] << _HALF | words(len(unsure)) >> _HALF",
        "whole = halves[unsure] << _HALF",
        "seeds of levels near an edge are decided by half a word",
        "tests/test_hierarchy.py::test_the_sampler_itself_has_these_probabilities_by_an_independent_derivation",
    ),
    Mutant(
        "ldpsql/channels/levels.py",
        "steps = words(len(levels)) // self._spreads.take(levels)",
        "steps = words(len(levels)) // self._spreads[0]",
        "all levels lie as often as the first one",
        "tests/test_hierarchy.py::test_the_sampler_itself_has_these_probabilities_by_an_independent_derivation",
    ),
    Mutant(
        "ldpsql/channels/key_value.py",
        "slots = np.maximum(sizes, self.padding).astype(np.uint64)",
        "slots = np.maximum(sizes, 1).astype(np.uint64)",
        "small sets are not padded",
        "tests/test_key_value.py::test_padding_sampling_and_rounding_draw_the_chances_of_the_certificate",
    ),
    # Random order
    Mutant(
        "ldpsql/bulk/orders.py",
        "return _untied(before[0], same, words) if len(same) else before[0]",
        "return before[0]",
        "rows with equal keys stay in the order of the source",
        "tests/test_shuffling.py::test_all_orders_of_four_are_equally_likely",
    ),
    Mutant(
        "ldpsql/bulk/orders.py",
        "order[order == blank] = rest",
        "order[order == blank] = np.sort(rest)",
        "reports that fill blank positions are sorted",
        "tests/test_shuffling.py::test_all_arrangements_of_numbers_are_equally_likely",
    ),
    Mutant(
        "ldpsql/bulk/orders.py",
        "joined, order = pa.concat_batches(batches), permutation(rows)",
        "joined, order = pa.concat_batches(batches), pa.array(range(rows))",
        "rows of a bucket stay in the order of the source",
        "tests/test_shuffling.py::test_scattered_rows_come_in_all_orders_equally_likely",
    ),
    Mutant(
        "ldpsql/bulk/orders.py",
        "            reports = self._shuffled(Scattered([file]), range(self.buckets), encoded=sink.encoded)",
        "            reports = self._reports(part, encoded=sink.encoded)",
        "a table is written in the order of its source",
        "tests/test_shuffling.py::test_a_table_says_nothing_by_its_order_either",
    ),
    # Central privacy of shuffled reports
    Mutant(
        "ldpsql/privacy/shuffling.py",
        "(common, common, common / ratio)",
        "(common, common, common)",
        "the central epsilon of hashes is stated too small",
        "tests/laws/test_privacy.py::test_the_central_epsilon_is_that_of_the_pair_of_laws_of_its_theorem "
        "tests/laws/test_privacy.py::test_no_data_set_of_few_shuffled_reports_reveals_more_than_the_central_epsilon "
        "tests/test_shuffled.py",
    ),
    Mutant(
        "ldpsql/privacy/shuffling.py",
        "return self.first if up else self.last",
        "return self.last if up else self.first",
        "the ends of blocks are exchanged, so a bound is on the wrong side",
        "tests/laws/test_privacy.py::test_the_central_epsilon_of_many_people_bounds_that_of_their_histograms",
    ),
    Mutant(
        "ldpsql/privacy/shuffling.py",
        "return Central(min(above * (1 + _APART), local), below * (1 - _APART), local)",
        "return Central(min(below * (1 + _APART), local), below * (1 - _APART), local)",
        "the lower bound is stated as the central epsilon",
        "tests/laws/test_privacy.py::test_the_central_epsilon_is_that_of_the_pair_of_laws_of_its_theorem",
    ),
)
