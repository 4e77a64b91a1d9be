from streams.engine.fail_stop import ExitCode, FailStop


def test_the_first_reason_ends_the_process_and_no_second_one_does() -> None:
    codes: list[int] = []
    fail_stop = FailStop(codes.append)
    fail_stop(ExitCode.SETTLE_DEADLINE, "late")
    fail_stop(ExitCode.AGENT_FAILED, "because of it")
    assert codes == [70]
    assert fail_stop.code is ExitCode.SETTLE_DEADLINE


def test_codes_are_distinct_and_outside_the_shells_own() -> None:
    codes = [int(code) for code in ExitCode]
    assert len(set(codes)) == len(codes)
    assert all(64 <= code < 126 for code in codes)
