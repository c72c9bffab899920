# What `cargo test -- --show-output` prints, without what tests that passed have to say, but that they skipped something; in the end
# what was skipped, counted. A binary's part is "successes:" with the tests' output, "successes:" with their names, and its result.
/^successes:$/ { quiet = 1 }
/^failures:$/ || /^test result: / { quiet = 0 }
quiet && /^---- .* stdout ----$/ { test = $2 }
quiet && sub(/^.*SKIPPED: /, "") { skipped[++n] = test ": " $0 }
!quiet { print; fflush() }
END {
  for (i = 1; i <= n; i++) print "skipped: " skipped[i]
  print "skipped: " n + 0 " tests of Rust, in whole or in part"
}
