//! Small traces for the declared divergences and what they taint, and for what only looks like one.
//! Expected outcomes are derived by hand from the format's description and the rules of the
//! reference's pool, never from what Glia answers.

use serde_json::{Value, json};

use super::by_hand::{alloc, conforms, init_v2, record, replay};
use super::{findings, golden_text};

#[test]
fn a_unit_that_stops_the_kernel_is_an_error_of_glia() {
    let init = |unit: u32| {
        record(
            &format!(r#"{{"op":"init","arch":"v2","min_alloc_size":{unit}}}"#),
            r#"{"bug":"min_alloc_size"}"#,
        )
    };
    let (code, report) = replay(&[init(6000), init(0), init_v2()]);
    assert_eq!(
        (code, &report["divergences"]),
        (0, &json!({"unit-size": 2}))
    );
    let (code, report) = replay(&[init(8192)]);
    assert_eq!(
        (code, findings(&report, "mismatch")),
        (1, vec!["2 init bug".to_owned()])
    );
}

#[test]
fn a_sum_that_wraps_in_the_reference_is_refused_by_glia() {
    let (code, report) = replay(&[
        init_v2(),
        alloc(
            1,
            4096,
            "device",
            7,
            r#"{"ret":0,"size":4096,"pa":16106127360,"pool":"small"}"#,
        ),
        alloc(
            2,
            4096,
            "device",
            19,
            r#"{"ret":0,"size":4096,"pa":16106123264,"pool":"main"}"#,
        ),
        alloc(
            3,
            4096,
            "device",
            19,
            r#"{"ret":0,"size":4096,"pa":16106119168,"pool":"main"}"#,
        ),
        // 2^64 - 1 + 1 = 0, which is not beyond 4096.
        record(
            r#"{"op":"bounds","id":1,"off":18446744073709551615,"len":1}"#,
            r#"{"ok":true,"wrapped":true}"#,
        ),
        // 2^64 - 1 + 2^64 - 1 = 2^64 - 2, which is.
        record(
            r#"{"op":"bounds","id":1,"off":18446744073709551615,"len":18446744073709551615}"#,
            r#"{"ok":false,"wrapped":true}"#,
        ),
        // 2^64 - 4096 + 12288 = 8192: as far as the main pool's end from the second page.
        record(
            r#"{"op":"bounds","id":3,"off":18446744073709547520,"len":12288}"#,
            r#"{"ok":true,"wrapped":true}"#,
        ),
        record(
            r#"{"op":"bounds","id":3,"off":0,"len":8192}"#,
            r#"{"ok":true}"#,
        ),
        record(
            r#"{"op":"bounds","id":3,"off":18446744073709547520,"len":12289}"#,
            r#"{"ok":false,"wrapped":true}"#,
        ),
    ]);
    assert_eq!(
        (code, &report["divergences"]),
        (0, &json!({"bounds-wrap": 2}))
    );
    assert_eq!(
        findings(&report, "divergence"),
        ["6 bounds bounds-wrap", "8 bounds bounds-wrap"]
    );
}

#[test]
fn a_wrap_that_is_not_the_reference_s_accident_is_a_mismatch() {
    let bounds = |id: u32, out: &str| {
        record(
            &format!(r#"{{"op":"bounds","id":{id},"off":18446744073709551615,"len":1}}"#),
            out,
        )
    };
    let (code, report) = replay(&[
        init_v2(),
        alloc(
            1,
            4096,
            "device",
            7,
            r#"{"ret":0,"size":4096,"pa":16106127360,"pool":"small"}"#,
        ),
        bounds(1, r#"{"ok":false,"wrapped":true}"#),
        bounds(1, r#"{"ok":true}"#),
        record(
            r#"{"op":"bounds","id":1,"off":0,"len":1}"#,
            r#"{"ok":true,"wrapped":true}"#,
        ),
    ]);
    assert_eq!(code, 1);
    let told = findings(&report, "mismatch");
    assert_eq!(
        told,
        ["4 bounds ok", "5 bounds wrapped", "6 bounds wrapped"]
    );
    assert_eq!(report["divergences"], json!({}));
}

#[test]
fn a_scratchpad_on_the_host_taints_until_the_next_init() {
    let taken = r#"{"ret":0,"size":4096,"pa_base":17592186044416,"pool":"coherent"}"#;
    let (code, report) = replay(&[
        init_v2(),
        alloc(1, 4096, "host", 19, taken),
        // Glia has no such chunk, so it cannot agree, and cannot tell anything by it.
        record(r#"{"op":"ref","id":1}"#, r#"{"ref":2}"#),
        record(r#"{"op":"search","pa":5}"#, r#"{"id":-1,"at":5}"#),
        record(
            r#"{"op":"bounds","id":1,"off":0,"len":1}"#,
            r#"{"oops":true}"#,
        ),
        init_v2(),
        record(
            r#"{"op":"search","pa":16777215}"#,
            r#"{"id":-1,"at":16777215}"#,
        ),
    ]);
    assert_eq!((code, &report["mismatches"]), (0, &json!(0)));
    assert_eq!(
        findings(&report, "divergence"),
        ["3 alloc host-scratchpad", "6 bounds dead-chunk"]
    );
    assert_eq!(findings(&report, "tainted"), ["4 ref out"]);
    assert_eq!(
        (&report["tainted_records"], &report["tainted_differences"]),
        (&json!(3), &json!(1))
    );
}

#[test]
fn a_scratchpad_on_the_host_that_both_refuse_is_no_divergence() {
    let aligned =
        alloc(1, 4096, "host", 19, r#"{"ret":-22}"#).replace(r#""align":0"#, r#""align":4096"#);
    let channel_2 = alloc(2, 4096, "host", 19, r#"{"ret":-22}"#).replace(r#""ch":0"#, r#""ch":2"#);
    conforms(&[init_v2(), aligned, channel_2]);
}

#[test]
fn a_scratchpad_on_the_host_that_the_reference_has_no_memory_for_is_declared_too() {
    let (code, report) = replay(&[init_v2(), alloc(1, 8 << 20, "host", 19, r#"{"ret":-12}"#)]);
    assert_eq!(
        (code, &report["divergences"]),
        (0, &json!({"host-scratchpad": 1}))
    );
}

#[test]
fn chunks_that_are_gone_are_refused_wherever_they_are_named() {
    let gone = |op: &str, out: &str| {
        [
            init_v2(),
            alloc(
                1,
                4096,
                "device",
                7,
                r#"{"ret":0,"size":4096,"pa":16106127360,"pool":"small"}"#,
            ),
            record(r#"{"op":"free","id":1}"#, r#"{"freed":true}"#),
            record(op, out),
        ]
    };
    let records: Vec<String> = [
        gone(r#"{"op":"free","id":1}"#, r#"{"bug":"null_chunk"}"#),
        gone(r#"{"op":"free","id":44}"#, r#"{"bug":"null_chunk"}"#),
        gone(r#"{"op":"free_stale","id":1}"#, r#"{"bug":"bad_magic"}"#),
        gone(r#"{"op":"ref","id":1}"#, r#"{"oops":true}"#),
        gone(r#"{"op":"publish","id":1}"#, r#"{"oops":true}"#),
        gone(
            r#"{"op":"bounds","id":44,"off":0,"len":0}"#,
            r#"{"oops":true}"#,
        ),
        gone(r#"{"op":"search","of":1,"off":0}"#, r#"{"oops":true}"#),
    ]
    .concat();
    let (code, report) = replay(&records);
    assert_eq!(
        (code, &report["divergences"]),
        (0, &json!({"dead-chunk": 7}))
    );
}

#[test]
fn what_leaks_at_teardown_is_counted_and_what_was_freed_before_is_compared() {
    let local = |id: u32, at: u64| {
        alloc(
            id,
            4096,
            "device",
            7,
            &format!(r#"{{"ret":0,"size":4096,"pa":{at},"pool":"small"}}"#),
        )
        .replace(r#""life":"device""#, r#""life":"local""#)
    };
    let teardown = |remaining: u32| {
        record(
            r#"{"op":"teardown"}"#,
            &format!(r#"{{"bug":"chunks_remaining","remaining":{remaining},"freed":[3,-2,-1]}}"#),
        )
    };
    let records = |remaining| {
        [
            init_v2(),
            local(1, 16_106_127_360),
            local(2, 16_106_131_456),
            alloc(
                3,
                4096,
                "device",
                7,
                r#"{"ret":0,"size":4096,"pa":16106135552,"pool":"small"}"#,
            ),
            teardown(remaining),
        ]
    };
    let (code, report) = replay(&records(2));
    assert_eq!(
        (code, &report["divergences"]),
        (0, &json!({"teardown-leak": 1}))
    );
    let (code, report) = replay(&records(1));
    assert_eq!(
        (code, findings(&report, "mismatch")),
        (1, vec!["6 teardown remaining".to_owned()])
    );
}

#[test]
fn the_current_process_is_1000_until_another_takes_over() {
    let mine = |id: u32, out: &str| {
        alloc(id, 4096, "device", 7, out).replace(r#""life":"device""#, r#""life":"process""#)
    };
    let taken = r#"{"ret":0,"size":4096,"pa":16106127360,"pool":"small"}"#;
    let (code, report) = replay(&[
        init_v2(),
        record(
            r#"{"op":"open","pid":1000}"#,
            r#"{"ok":true,"slot":0,"open":1}"#,
        ),
        init_v2(),
        // The init has closed all files, and a request without memory is refused for that first.
        mine(1, r#"{"ret":-12}"#).replace(r#""size":4096"#, r#""size":1099511627776"#),
        mine(2, r#"{"bug":"process_not_attached"}"#),
        init_v2(),
        record(
            r#"{"op":"open","pid":1}"#,
            r#"{"ok":true,"slot":0,"open":1}"#,
        ),
        mine(1, taken),
        record(r#"{"op":"as","pid":1000}"#, "{}"),
        record(
            r#"{"op":"expire","life":"local"}"#,
            r#"{"bug":"process_not_attached"}"#,
        ),
    ]);
    assert_eq!(
        (code, &report["divergences"]),
        (0, &json!({"unattached-process": 2}))
    );
}

#[test]
fn reserve_counters_follow_what_was_freed_in_each_pool() {
    let hrm = |id: u32, size: u64, rest: &str| {
        alloc(
            id,
            size,
            "host",
            0,
            &format!(r#"{{"ret":0,"size":{size},"pa_base":17592186044416,"pool":"hrm",{rest}}}"#),
        )
    };
    let stats = |allocated: [i64; 4], free: [u64; 4], host_mem: u64, chunks: u64| {
        let golden = golden_text("basic-v2.jsonl");
        let mut record: Value = serde_json::from_str(golden.lines().nth(2).unwrap()).unwrap();
        for pool in 0..4 {
            record["out"]["hrm"][pool] = json!({"allocated": allocated[pool], "free": free[pool]});
        }
        record["out"]["host_mem"] = host_mem.into();
        record["out"]["chunks"] = chunks.into();
        record["out"]["lists"]["device"] = chunks.into();
        record.to_string()
    };
    let all = 33_554_432;
    let (code, report) = replay(&[
        init_v2(),
        record(r#"{"op":"fail_host","count":-1}"#, "{}"),
        hrm(1, 4096, r#""hrm":0,"page":127,"off":0"#),
        hrm(2, 524_288, r#""hrm":1,"page":63,"off":0"#),
        stats(
            [0, 0, 0, 0],
            [all - 4096, all - 524_288, all, all],
            528_384,
            4,
        ),
        record(r#"{"op":"free","id":2}"#, r#"{"freed":true}"#),
        stats([0, -524_288, 0, 0], [all - 4096, all, all, all], 4096, 3),
        record(r#"{"op":"free","id":1}"#, r#"{"freed":true}"#),
        stats([-4096, -524_288, 0, 0], [all; 4], 0, 2),
        // Glia's own figures are not what the reference has.
        stats([0; 4], [all; 4], 0, 2),
    ]);
    assert_eq!(
        (code, &report["divergences"]),
        (1, &json!({"reserve-counter": 3}))
    );
    assert_eq!(
        findings(&report, "mismatch"),
        ["11 stats hrm[0].allocated", "11 stats hrm[1].allocated"]
    );
    let finding = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .find(|finding| finding["kind"] == "mismatch")
        .unwrap();
    assert_eq!(
        (&finding["got"], &finding["note"]),
        (
            &json!(0),
            &json!("by reserve-counter the reference's is -4096")
        )
    );
}
