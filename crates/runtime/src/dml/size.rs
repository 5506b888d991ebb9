//! Sizes as the runtime prints them.

const UNITS: [&str; 4] = ["B", "KB", "MB", "GB"];

/// A size with three decimals in the largest of four units that it reaches; a unit is 1,024 of the
/// one before (runtime 2.31).
///
/// ```
/// use glia_runtime::dml::printed;
///
/// assert_eq!(printed(45_429_760), "43.325MB");
/// ```
#[must_use]
pub fn printed(bytes: u64) -> String {
    let exponent = bytes.checked_ilog2().map_or(0, |bits| bits as usize / 10);
    let exponent = exponent.min(UNITS.len() - 1);
    #[expect(
        clippy::cast_precision_loss,
        reason = "the reference prints a double, too"
    )]
    let number = bytes as f64 / (1_u64 << (10 * exponent)) as f64;
    format!("{number:.3}{}", UNITS[exponent])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_are_printed_as_in_real_logs() {
        let cases = [
            (0, "0.000B"),
            (1023, "1023.000B"),
            (1024, "1.000KB"),
            (1088, "1.062KB"), // 1.0625: the tie goes to the even digit
            (13_743_184, "13.107MB"),
            (45_429_760, "43.325MB"),
            (180_355_072, "172.000MB"),
            ((1 << 30) - 1, "1024.000MB"),
            (3 << 39, "1536.000GB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(printed(bytes), text);
        }
    }

    proptest! {
        #[test]
        fn a_printed_size_is_within_half_a_thousandth_of_its_unit(bytes in 0..1_u64 << 50) {
            let text = printed(bytes);
            let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap();
            let (number, unit) = text.split_at(unit_at);
            let exponent = UNITS.iter().position(|&known| known == unit).unwrap();
            let unit_bytes = f64::from(1_u32 << (10 * exponent));
            let number: f64 = number.parse().unwrap();
            let distance = (number * unit_bytes - bytes as f64).abs();
            prop_assert!(distance <= unit_bytes * 0.000_500_001);
        }
    }
}
