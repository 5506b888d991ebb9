//! Small traces for parameters, scripted failures and limits that the golden traces do not hold.
//! Expected outcomes are derived by hand from the format's description and the rules of the
//! reference's pool, never from what Glia answers.

use serde_json::{Value, json};

use super::by_hand::{alloc, conforms, init_v2, record, replay};
use super::findings;

#[test]
fn kernel_memory_for_chunk_records_fails_as_scripted() {
    conforms(&[
        init_v2(),
        record(r#"{"op":"fail_kmem","after":1,"count":2}"#, "{}"),
        alloc(
            1,
            4096,
            "device",
            7,
            r#"{"ret":0,"size":4096,"pa":16106127360,"pool":"small"}"#,
        ),
        alloc(2, 4096, "device", 7, r#"{"ret":-12}"#),
        alloc(3, 4096, "host", 0, r#"{"ret":-12}"#),
        alloc(
            4,
            4096,
            "device",
            7,
            r#"{"ret":0,"size":4096,"pa":16106131456,"pool":"small"}"#,
        ),
    ]);
}

#[test]
fn a_request_refused_for_its_arguments_asks_for_no_kernel_memory() {
    let channel_9 = alloc(1, 1, "device", 7, r#"{"ret":-22}"#).replace(r#""ch":0"#, r#""ch":9"#);
    let core_8 = alloc(2, 1, "device", 7, r#"{"ret":-22}"#).replace(r#""nc":0"#, r#""nc":8"#);
    conforms(&[
        init_v2(),
        record(r#"{"op":"fail_kmem","after":0,"count":1}"#, "{}"),
        channel_9,
        core_8,
        // Nothing is asked of the pools before the record is had, but it is had before they refuse
        // a size of 0.
        alloc(3, 0, "device", 7, r#"{"ret":-12}"#),
        alloc(
            4,
            1,
            "device",
            7,
            r#"{"ret":0,"size":4096,"pa":16106127360,"pool":"small"}"#,
        ),
    ]);
}

#[test]
fn a_handle_page_that_cannot_be_had_takes_the_table_down() {
    conforms(&[
        init_v2(),
        alloc(
            1,
            1,
            "device",
            7,
            r#"{"ret":0,"size":4096,"pa":16106127360,"pool":"small"}"#,
        ),
        record(
            r#"{"op":"hbulk","count":8190,"token":5}"#,
            r#"{"ret":0,"ok":8190,"first":1,"last":8190}"#,
        ),
        record(
            r#"{"op":"hstat"}"#,
            r#"{"down":false,"next":8191,"tables":1}"#,
        ),
        record(r#"{"op":"fail_kmem","after":0,"count":1}"#, "{}"),
        record(r#"{"op":"halloc","token":6}"#, r#"{"ret":-2}"#),
        record(r#"{"op":"hstat"}"#, r#"{"down":true,"next":0,"tables":1}"#),
        record(r#"{"op":"find","handle":1}"#, r#"{"id":null}"#),
        record(r#"{"op":"hfree","handle":1}"#, r#"{"ret":-2}"#),
        record(r#"{"op":"publish","id":1}"#, r#"{"ret":-2,"handle":0}"#),
        record(
            r#"{"op":"hbulk","count":3,"token":7}"#,
            r#"{"ret":-2,"ok":0}"#,
        ),
        record(r#"{"op":"free","id":1}"#, r#"{"freed":true}"#),
    ]);
}

#[test]
fn a_full_handle_table_goes_down_one_handle_early() {
    conforms(&[
        init_v2(),
        record(
            r#"{"op":"hbulk","count":4194303,"token":18446744073709551615}"#,
            r#"{"ret":-2,"ok":4194302,"first":1,"last":4194302}"#,
        ),
        record(
            r#"{"op":"hstat"}"#,
            r#"{"down":true,"next":0,"tables":512}"#,
        ),
        record(r#"{"op":"find","handle":4194302}"#, r#"{"id":null}"#),
        record(r#"{"op":"halloc","token":1}"#, r#"{"ret":-2,"handle":0}"#),
    ]);
}

#[test]
fn tokens_have_64_bits() {
    conforms(&[
        init_v2(),
        record(
            r#"{"op":"halloc","token":18446744073709551615}"#,
            r#"{"ret":0,"handle":1}"#,
        ),
        record(r#"{"op":"halloc","token":0}"#, r#"{"ret":0,"handle":2}"#),
        record(
            r#"{"op":"find","handle":1}"#,
            r#"{"token":18446744073709551615}"#,
        ),
        record(r#"{"op":"find","handle":2}"#, r#"{"token":0}"#),
        record(
            r#"{"op":"hbulk","count":0,"token":0}"#,
            r#"{"ret":0,"ok":0}"#,
        ),
    ]);
}

/// The outcome of a V2 init with other reserve pages, 256 KiB first, and what they take from the
/// host.
fn init_v2_with_pages(arguments: &str, pages: [u32; 4], host_used: u64) -> String {
    let mut init: Value = serde_json::from_str(&init_v2()).unwrap();
    for (pool, count) in pages.into_iter().enumerate() {
        init["out"]["hrm"][pool]["pages"] = count.into();
    }
    init["out"]["host_used"] = host_used.into();
    init.to_string()
        .replacen('{', &format!("{{{arguments},"), 1)
}

#[test]
fn reserve_pools_are_built_from_the_largest_pages_down_until_host_memory_fails() {
    // 16 pages of 2 MiB and 2 of 1 MiB are had; the next fails, which ends its pool; 64 of 512 KiB
    // and 128 of 256 KiB are had.
    let one_fails = init_v2_with_pages(
        r#""host_fail_after":18,"host_fail_count":1"#,
        [128, 64, 2, 16],
        98 << 20,
    );
    let all_fail = init_v2_with_pages(r#""host_fail_after":18"#, [0, 0, 2, 16], 34 << 20);
    conforms(&[
        one_fails,
        all_fail,
        // The failures end with the init.
        alloc(
            1,
            1,
            "host",
            0,
            r#"{"ret":0,"size":4096,"pa_base":17592186044416,"pool":"coherent"}"#,
        ),
        record(r#"{"op":"fail_host","count":-1}"#, "{}"),
        // Pools 0 and 1 have no page, and the page obtained last is tried first.
        alloc(
            2,
            1,
            "host",
            0,
            r#"{"ret":0,"size":4096,"pa_base":17592186044416,"pool":"hrm","hrm":2,"page":1,"off":0}"#,
        ),
        alloc(
            3,
            1 << 20,
            "host",
            0,
            r#"{"ret":0,"size":1048576,"pa_base":17592186044416,"pool":"hrm","hrm":2,"page":0,"off":0}"#,
        ),
        alloc(
            4,
            1 << 20,
            "host",
            0,
            r#"{"ret":0,"size":1048576,"pa_base":17592186044416,"pool":"hrm","hrm":3,"page":15,"off":0}"#,
        ),
        alloc(
            5,
            8192,
            "host",
            0,
            r#"{"ret":0,"size":8192,"pa_base":17592186044416,"pool":"hrm","hrm":2,"page":1,"off":4096}"#,
        ),
        alloc(6, (2 << 20) + 1, "host", 0, r#"{"ret":-12}"#),
    ]);
}

#[test]
fn the_largest_request_and_the_capacity_bound_host_memory() {
    let init = init_v2_with_pages(
        r#""host_max_alloc":524288,"host_capacity":67637248"#,
        [128, 64, 0, 0],
        64 << 20,
    );
    conforms(&[
        init,
        // The reserve pools have left 512 KiB and a page, and a largest request is 512 KiB.
        alloc(
            1,
            524_288,
            "host",
            0,
            r#"{"ret":0,"size":524288,"pa_base":17592186044416,"pool":"coherent"}"#,
        ),
        alloc(
            2,
            8192,
            "host",
            0,
            r#"{"ret":0,"size":8192,"pa_base":17592186044416,"pool":"hrm","hrm":0,"page":127,"off":0}"#,
        ),
        alloc(
            3,
            4096,
            "host",
            0,
            r#"{"ret":0,"size":4096,"pa_base":17592186044416,"pool":"coherent"}"#,
        ),
        record(r#"{"op":"free","id":1}"#, r#"{"freed":true}"#),
        alloc(4, 524_289, "host", 0, r#"{"ret":-12}"#),
    ]);
}

#[test]
fn a_host_request_of_nothing_takes_nothing() {
    conforms(&[
        init_v2(),
        alloc(1, 0, "host", 0, r#"{"ret":-12}"#),
        record(
            r#"{"op":"teardown"}"#,
            r#"{"freed":[-2,-1],"forced":[],"host_left":0}"#,
        ),
        record(r#"{"op":"hstat"}"#, r#"{"down":true,"next":0,"tables":0}"#),
    ]);
}

#[test]
fn a_unit_that_is_no_power_of_two_is_placed_by_the_granule_below() {
    // 1 GiB is no multiple of 12288, so there is no small pool.
    let channel = |base: u64| {
        json!({
            "base": base, "size": 17_179_869_184_u64, "main_end": base + 17_179_869_184, "small": 0,
            "carveout_pa": base, "carveout_size": 16_777_216, "effective_base": base + 16_777_216, "end": base + 17_179_869_184,
        })
    };
    let mut init: Value = serde_json::from_str(&init_v2()).unwrap();
    init["min_alloc_size"] = 12_288.into();
    init["out"]["granule"] = 8192.into();
    init["out"]["ch"] = json!([channel(0), channel(68_719_476_736)]);
    conforms(&[
        init.to_string(),
        alloc(
            1,
            4096,
            "device",
            7,
            r#"{"ret":0,"size":4096,"pa":16777216,"pool":"main"}"#,
        ),
        alloc(
            2,
            12_288,
            "device",
            7,
            r#"{"ret":0,"size":12288,"pa":16785408,"pool":"main"}"#,
        ),
        alloc(
            3,
            4096,
            "device",
            7,
            r#"{"ret":0,"size":4096,"pa":16801792,"pool":"main"}"#,
        ),
        // The place of the first scratchpad page would be the region's last 4 KiB.
        alloc(
            4,
            4096,
            "device",
            19,
            r#"{"ret":-12,"log":"misaligned_fixed_offset"}"#,
        ),
        alloc(
            5,
            8192,
            "device",
            19,
            r#"{"ret":0,"size":8192,"pa":17179860992,"pool":"main"}"#,
        ),
        record(
            r#"{"op":"dump","ch":0,"max":2}"#,
            r#"{"count":5,"chunks":[[0,16777216,13],[16777216,4096,7]]}"#,
        ),
    ]);
}

#[test]
fn a_region_without_room_for_the_carveout_makes_no_device() {
    let init = |bar: u64, small: u64, ret: i32| {
        record(
            &format!(
                r#"{{"op":"init","arch":"v3","qemu_bar_size":{bar},"small_pool_size":{small}}}"#
            ),
            &format!(r#"{{"ret":{ret}}}"#),
        )
    };
    conforms(&[
        // 8 MiB a region, no small pool.
        init(32 << 20, 0, -12),
        // 72 MiB a region, all but 8 MiB of it small pool, where the carveout then lands.
        init(288 << 20, 64 << 20, -22),
    ]);
}

#[test]
fn a_device_that_did_not_come_up_answers_nothing() {
    let failing = record(
        r#"{"op":"init","arch":"v3","qemu_bar_size":33554432,"small_pool_size":0}"#,
        r#"{"ret":-12}"#,
    );
    let (code, report) = replay(&[
        failing,
        record(r#"{"op":"hstat"}"#, r#"{"down":true,"next":0,"tables":0}"#),
    ]);
    assert_eq!(
        (code, findings(&report, "mismatch")),
        (1, vec!["3 hstat out".to_owned()])
    );
    let text = report["findings"][0]["got"].as_str().unwrap();
    assert_eq!(
        text,
        "error: there is no device, since the last init failed"
    );
}

#[test]
fn a_seventeenth_process_finds_no_slot() {
    let open = |pid: u32, out: &str| record(&format!(r#"{{"op":"open","pid":{pid}}}"#), out);
    let mut records = vec![init_v2()];
    records.extend((0..16).map(|slot| {
        open(
            100 + slot,
            &format!(r#"{{"ok":true,"slot":{slot},"open":1}}"#),
        )
    }));
    records.extend([
        open(200, r#"{"ok":false}"#),
        open(201, r#"{"ok":false,"slot":-1,"open":0}"#),
        open(105, r#"{"ok":true,"slot":5,"open":2}"#),
        record(
            r#"{"op":"close","pid":103}"#,
            r#"{"attached":1,"process":{"freed":[],"kept":[]},"open_left":0}"#,
        ),
        record(
            r#"{"op":"close","pid":105}"#,
            r#"{"attached":2,"open_left":1}"#,
        ),
        open(200, r#"{"ok":true,"slot":3,"open":1}"#),
        record(
            r#"{"op":"close","pid":999}"#,
            r#"{"attached":0,"open_left":-1}"#,
        ),
    ]);
    conforms(&records);
}
