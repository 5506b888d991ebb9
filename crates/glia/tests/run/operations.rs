//! Operations beyond taking, writing, reading and freeing.

use super::{error, json};

#[test]
fn a_memset_is_compared_like_a_write() {
    let (run, code) = json(&[
        r#"{"op":"alloc","id":"a","size":5000}"#,
        r#"{"op":"write","id":"a","seed":1}"#,
        r#"{"op":"memset","id":"a","offset":10,"size":1000,"value":171}"#,
        r#"{"op":"read","id":"a"}"#,
        r#"{"op":"alloc","id":"w","size":5000,"usage":"weight"}"#,
        r#"{"op":"memset","id":"w"}"#,
        r#"{"op":"read","id":"w","offset":4000}"#,
        r#"{"op":"memset","id":"w","offset":4999,"size":2,"expect":"NRT_INVALID"}"#,
    ]);
    assert_eq!(code, 0, "{run}");
    assert_eq!(run["bytes"]["verified"], 5000 + 1000);
    assert_eq!(run["operations"]["memset"], 3);
}

#[test]
fn a_copy_takes_what_was_written_along() {
    let (run, code) = json(&[
        r#"{"op":"alloc","id":"a","size":"1MiB"}"#,
        r#"{"op":"write","id":"a","seed":1,"size":100000}"#,
        r#"{"op":"memset","id":"a","offset":50000,"size":10,"value":7}"#,
        r#"{"op":"alloc","id":"b","size":"1MiB"}"#,
        r#"{"op":"write","id":"b","seed":2}"#,
        r#"{"op":"copy","id":"a","offset":49999,"size":60000,"to":"b","to_offset":333}"#,
        r#"{"op":"read","id":"b"}"#,
    ]);
    assert_eq!(code, 0, "{run}");
    // Of the 60,000 bytes that were copied, the last 9,999 had never been written.
    assert_eq!(run["bytes"]["verified"], (1 << 20) - 9_999);
}

#[test]
fn a_copy_to_another_hbm_is_refused_as_the_runtime_does() {
    let (run, code) = json(&[
        r#"{"op":"alloc","id":"a","size":4096,"core":0}"#,
        r#"{"op":"alloc","id":"b","size":4096,"core":2}"#,
        r#"{"op":"copy","id":"a","to":"b","expect":"NRT_INVALID"}"#,
        r#"{"op":"copy","id":"a","to":"a","offset":4096,"size":1,"expect":"NRT_INVALID"}"#,
    ]);
    assert_eq!(code, 0, "{run}");
}

#[test]
fn a_slice_is_a_part_of_its_tensor_and_keeps_the_memory() {
    let (run, code) = json(&[
        r#"{"op":"alloc","id":"a","size":"1MiB"}"#,
        r#"{"op":"write","id":"a","seed":1}"#,
        r#"{"op":"slice","id":"s","of":"a","offset":1000,"size":5000}"#,
        r#"{"op":"slice","id":"t","of":"s","offset":10}"#,
        r#"{"op":"write","id":"t","offset":1,"size":100,"seed":2}"#,
        r#"{"op":"read","id":"a"}"#,
        r#"{"op":"free","id":"a"}"#,
        r#"{"op":"read","id":"s"}"#,
        r#"{"op":"slice","id":"u","of":"s","offset":5000,"size":1,"expect":"NRT_INVALID"}"#,
        r#"{"op":"check","present":"1MiB"}"#,
        r#"{"op":"free","id":"s"}"#,
        r#"{"op":"free","id":"t"}"#,
        r#"{"op":"check","present":0,"peak":"1MiB"}"#,
    ]);
    assert_eq!(code, 0, "{run}");
    assert_eq!(run["bytes"]["verified"], (1 << 20) + 5000);
    assert_eq!(run["operations"]["live"], 0);
}

#[test]
fn a_buffer_of_the_program_can_be_a_tensors_bytes() {
    let (run, code) = json(&[
        r#"{"op":"attach","id":"h","size":"8KiB"}"#,
        r#"{"op":"write","id":"h","seed":4}"#,
        r#"{"op":"read","id":"h"}"#,
        r#"{"op":"alloc","id":"a","size":"8KiB"}"#,
        r#"{"op":"copy","id":"h","to":"a"}"#,
        r#"{"op":"read","id":"a"}"#,
        r#"{"op":"attach","id":"a","size":100}"#,
        r#"{"op":"read","id":"a"}"#,
        r#"{"op":"check","present":0}"#,
        r#"{"op":"attach","id":"n","size":0,"expect":"NRT_FAIL_HOST_MEM_ALLOC"}"#,
        r#"{"op":"read_batch","parts":[{"id":"h"}],"expect":"NRT_INVALID"}"#,
    ]);
    assert_eq!(code, 0, "{run}");
    assert_eq!(run["bytes"]["verified"], 2 * 8192);
    assert_eq!(run["bytes"]["read"], 2 * 8192 + 100);
}

#[test]
fn a_batch_moves_many_ranges_by_one_call() {
    let (run, code) = json(&[
        r#"{"op":"alloc","id":"a","size":"64KiB"}"#,
        r#"{"op":"alloc","id":"b","size":4096,"core":3}"#,
        r#"{"op":"write_batch","parts":[{"id":"a","offset":10,"size":1000,"seed":1},{"id":"a","offset":500,"size":7,"seed":2},{"id":"b","seed":3}]}"#,
        r#"{"op":"read","id":"a"}"#,
        r#"{"op":"read_batch","fenced":false,"parts":[{"id":"b"},{"id":"a","offset":5,"size":100}]}"#,
        r#"{"op":"read_batch","parts":[{"id":"b","offset":4000,"size":97}],"expect":"NRT_INVALID"}"#,
        r#"{"op":"write_batch","parts":[],"expect":"NRT_INVALID"}"#,
    ]);
    assert_eq!(code, 0, "{run}");
    assert_eq!(run["bytes"]["written"], 1007 + 4096);
    assert_eq!(run["bytes"]["verified"], 1000 + 4096 + 95);
}

#[test]
fn a_scratchpad_has_pages_for_the_largest_need_of_its_models() {
    let (run, code) = json(&[
        r#"{"op":"load","id":"m"}"#,
        r#"{"op":"load","id":"n"}"#,
        r#"{"op":"reserve","id":"m","variables":[{"offset":0,"size":"100MiB"},{"offset":"500MiB","size":"100MiB"}]}"#,
        // Two pages, and a block for what crosses their border.
        r#"{"op":"check","present":1178599424}"#,
        r#"{"op":"reserve","id":"n","variables":[{"offset":0,"size":"512MiB"}]}"#,
        r#"{"op":"check","present":1178599424}"#,
        r#"{"op":"unload","id":"m"}"#,
        r#"{"op":"check","present":"512MiB"}"#,
        r#"{"op":"unload","id":"n"}"#,
        r#"{"op":"check","present":0,"peak":1178599424}"#,
        r#"{"op":"load","id":"o"}"#,
        r#"{"op":"reserve","id":"o","variables":[{"offset":"600GiB","size":1}],"expect":"NRT_RESOURCE"}"#,
    ]);
    assert_eq!(code, 0, "{run}");
    let peak = &run["peaks"][0];
    assert_eq!(peak["bytes"], 1_178_599_424_u64);
    assert_eq!(peak["categories"]["shared scratchpad"], 1_u64 << 30);
    assert_eq!(peak["categories"]["scratchpad"], 100_u64 << 20);
}

#[test]
fn a_contiguous_scratchpad_is_asked_for_in_the_first_line() {
    let first = r#"{"workload":1,"machine":"trn1","scratchpad":"contiguous"}"#;
    let workload = format!(
        "{first}\n{}\n{}\n{}\n",
        r#"{"op":"load","id":"m"}"#,
        r#"{"op":"reserve","id":"m","variables":[{"offset":0,"size":"100MiB"}]}"#,
        // Two pages of 64 MiB, and nothing of its own.
        r#"{"op":"check","present":"128MiB"}"#,
    );
    let run = super::run(&["-"], &workload);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
}

#[test]
fn bytes_outlive_the_reset_of_a_core_and_of_a_device() {
    let (run, code) = json(&[
        r#"{"op":"alloc","id":"a","size":"1MiB","core":2}"#,
        r#"{"op":"write","id":"a","seed":1}"#,
        r#"{"op":"reset","cores":[2,3]}"#,
        r#"{"op":"read","id":"a"}"#,
        r#"{"op":"reset"}"#,
        r#"{"op":"read","id":"a"}"#,
    ]);
    assert_eq!(code, 0, "{run}");
    assert_eq!(run["bytes"]["verified"], 2 << 20);
}

#[test]
fn a_fault_is_ordered_by_a_line_and_mended_by_another() {
    let (run, code) = json(&[
        r#"{"op":"alloc","id":"a","size":4096}"#,
        r#"{"op":"fault","id":"f","rule":{"kind":"failed-internal-alloc","of":"request","nth":2}}"#,
        r#"{"op":"alloc","id":"b","size":4096}"#,
        r#"{"op":"alloc","id":"c","size":4096,"expect":"NRT_RESOURCE"}"#,
        r#"{"op":"mend","id":"f"}"#,
        r#"{"op":"fault","id":"f","rule":{"kind":"failed-internal-alloc","of":"request"}}"#,
        r#"{"op":"alloc","id":"c","size":4096,"expect":"NRT_RESOURCE"}"#,
    ]);
    assert_eq!(code, 0, "{run}");
    let faults = run["faults"].as_array().unwrap();
    let of = |n: usize| (&faults[n]["line"], &faults[n]["strikes"]);
    assert_eq!(of(0), (&7.into(), &1.into()), "still ordered");
    assert_eq!(of(1), (&3.into(), &1.into()), "mended");
    assert!(faults.iter().all(|fault| fault["id"] == "f"), "{run}");
}

#[test]
fn a_plan_of_the_first_line_is_at_work_from_the_beginning() {
    let plan = r#"{"fault":[{"kind":"flipped-bits","offset_bytes":9,"mask":128,"nth":1}]}"#;
    let workload = format!(
        "{{\"workload\":1,\"faults\":{plan}}}\n{}\n{}\n{}\n",
        r#"{"op":"alloc","id":"a","size":4096}"#,
        r#"{"op":"write","id":"a","seed":3}"#,
        r#"{"op":"read","id":"a"}"#,
    );
    let run = super::run(&["-"], &workload);
    assert_eq!(run.code, 1);
    assert!(run.stdout.contains("but byte 9 is "), "{}", run.stdout);
}

/// Its first piece, or the first part of a batch, was compared and found equal: more bytes than were
/// counted as read.
#[test]
fn a_read_in_which_a_byte_differs_counts_neither_as_read_nor_as_verified() {
    let large = r#"{"op":"read","id":"a"}"#;
    let batch =
        r#"{"op":"read_batch","parts":[{"id":"a","size":"8MiB"},{"id":"a","offset":"8MiB"}]}"#;
    for read in [large, batch] {
        // The 200th descriptor of 64 KiB is behind the first 8 MiB.
        let rule = r#"{"op":"fault","id":"f","rule":{"kind":"flipped-bits","nth":200}}"#;
        let lines = [
            r#"{"op":"alloc","id":"never","size":4096}"#,
            r#"{"op":"read","id":"never"}"#,
            r#"{"op":"alloc","id":"a","size":"16MiB"}"#,
            r#"{"op":"write","id":"a","seed":1}"#,
            rule,
            read,
        ];
        let (run, code) = json(&lines);
        assert_eq!(code, 1, "{run}");
        assert_eq!(run["failure"]["line"], 7, "{run}");
        let bytes = serde_json::json!({"written": 16 << 20, "read": 4096, "verified": 0});
        assert_eq!(run["bytes"], bytes, "{read}");
        let workload = format!("{{\"workload\":1}}\n{}\n", lines.join("\n"));
        let told = super::run(&["-"], &workload).stdout;
        let wanted = "4 KiB read and verified but for 4 KiB that were never written";
        assert!(told.contains(wanted), "{told}");
    }
}

#[test]
fn a_size_outside_its_bounds_is_told_with_both() {
    let (run, code) = json(&[
        r#"{"op":"alloc","id":"a","size":"1GiB","core":2}"#,
        r#"{"op":"check","core":3,"present":"1GiB","free":{"most":"24GiB"},"largest_free":{"least":"20GiB","most":"23GiB"}}"#,
        r#"{"op":"check","hbm":1,"peak":{"least":1,"most":"1023MiB"}}"#,
    ]);
    assert_eq!(code, 1);
    let failure = &run["failure"];
    assert_eq!(failure["line"], 4, "{run}");
    assert_eq!(
        failure["what"],
        "\"peak\" of nd 0 hbm 1 is 1073741824 bytes, and was to be 1 to 1072693248"
    );
    assert!(failure["status"].is_null());
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let a = r#"{"op":"alloc","id":"a","size":4096}"#;
    let w = r#"{"op":"alloc","id":"w","size":4096,"usage":"weight"}"#;
    let cases: [(&[&str], &str); 26] = [
        (
            &[a, r#"{"op":"memset","id":"a","value":256}"#],
            "line 3: invalid value: integer `256`, expected a whole number, 0 to 255",
        ),
        (
            &[r#"{"op":"alloc","id":"a","size":"1GB"}"#],
            "line 2: \"1GB\" is no size: units are B, KiB, MiB, GiB and TiB",
        ),
        (
            &[r#"{"op":"alloc","id":"a","size":"1.98GiB"}"#],
            "line 2: \"1.98GiB\" is no size: that is no whole number of bytes: take a smaller unit, or a fraction that halving gives, such as 1.25, column",
        ),
        (
            &[r#"{"op":"alloc","id":"a","size":18446744073709551616}"#],
            "line 2: \"18446744073709552000\" is no size: that is too large",
        ),
        (
            &[r#"{"op":"alloc","id":"a","size":1,"location":"host","at":"0x5c0000000"}"#],
            "line 2: \"at\" means nothing on alloc of host memory",
        ),
        (
            &[r#"{"op":"reset","cores":[]}"#],
            "line 2: unknown cores \"[]\": allowed are lists of 0 to 7",
        ),
        (
            &[r#"{"op":"check","peak":{}}"#],
            "line 2: bounds need \"least\", \"most\" or both",
        ),
        (
            &[r#"{"op":"check","peak":{"least":5,"most":1}}"#],
            "line 2: nothing is at least 5 and at most 1 bytes",
        ),
        (
            &[a, r#"{"op":"memset","id":"a","seed":1}"#],
            "line 3: \"seed\" means nothing on memset: allowed are op, id, offset, size, value, expect",
        ),
        (
            &[a, r#"{"op":"copy","id":"a"}"#],
            "line 3: copy needs \"to\"",
        ),
        (
            &[a, w, r#"{"op":"copy","id":"a","to":"w"}"#],
            "line 4: object \"w\" is no tensor, as copy needs: a tensor is made by",
        ),
        (
            &[w, r#"{"op":"slice","id":"s","of":"w"}"#],
            "line 3: object \"w\" is no tensor, as slice needs",
        ),
        (
            &[a, r#"{"op":"slice","id":"a","of":"a"}"#],
            "line 3: an object \"a\" lives since line 2",
        ),
        (
            &[w, r#"{"op":"attach","id":"w","size":1}"#],
            "line 3: object \"w\" is no tensor, as attach needs",
        ),
        (
            &[a, r#"{"op":"read_batch","parts":[{"id":"a","seed":1}]}"#],
            "line 3: \"seed\" means nothing on a part of read_batch: allowed are id, offset, size",
        ),
        (
            &[a, r#"{"op":"write_batch","parts":[{"id":"a","siz":1}]}"#],
            "line 3: unknown field `siz`, expected one of `id`, `offset`, `size`, `seed`",
        ),
        (
            &[a, r#"{"op":"write_batch","parts":[["a"]]}"#],
            "line 3: invalid type: sequence, expected an object",
        ),
        (
            &[
                a,
                r#"{"op":"read_batch","parts":[{"id":"a","size":"1GiB"}]}"#,
            ],
            "line 3: size of all parts 1073741824: 0 to 268435456 are allowed",
        ),
        (
            &[r#"{"op":"reserve","id":"m","variables":[]}"#],
            "line 2: no model \"m\" is loaded here",
        ),
        (
            &[r#"{"op":"reserve","id":"m"}"#],
            "line 2: reserve needs \"variables\"",
        ),
        (
            &[r#"{"op":"reset","cores":[8]}"#],
            "line 2: cores 8: 0 to 7 are allowed",
        ),
        (
            &[r#"{"op":"fault","id":"f","rule":{"kind":"stuck-queu"}}"#],
            "line 2: fault 1: `kind` is \"stuck-queu\", which does not exist: did you mean `stuck-queue`?",
        ),
        (
            &[r#"{"op":"fault","id":"f","rule":{"kind":"stuck-queue","core":9}}"#],
            "`core` is 9 and has to be 0 to 7",
        ),
        (
            &[r#"{"op":"mend","id":"f"}"#],
            "line 2: no fault \"f\" is ordered here",
        ),
        (
            &[r#"{"op":"check","hbm":4,"peak":1}"#],
            "line 2: hbm 4: 0 to 3 are allowed",
        ),
        (
            &[r#"{"op":"check"}"#],
            "line 2: check needs \"present\", \"peak\", \"free\" or \"largest_free\"",
        ),
    ];
    for (lines, wanted) in cases {
        let error = error(lines);
        assert!(error.contains(wanted), "{error}");
    }
}
