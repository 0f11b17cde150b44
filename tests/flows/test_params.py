import re

import pytest
import yaml

from firmbound.errors import ParameterError
from flows.params import check_dataset_name, read_params
from flows.params_file import replace_section
from tests.test_architecture import ROOT


def good():
    return yaml.safe_load((ROOT / "params.yaml").read_text())


def read(tmp_path, params):
    file = tmp_path / "params.yaml"
    file.write_text(yaml.safe_dump(params))
    return read_params(file)


@pytest.mark.parametrize("file", ["params.yaml", "params/paper.yaml", "params/real.yaml"])
def test_what_ships_is_valid(file):
    params = read_params(ROOT / file)
    for dataset in params.datasets:
        section = params.features[dataset]
        if section.kind in ("gaussian", "autoregressive", "oscillating"):
            assert section.problem("test").horizon == 50
        else:
            assert section.sequence_options().split.seed == 0


def test_paper_sizes_are_the_papers():
    params = read_params(ROOT / "params" / "paper.yaml")
    sizes = {name: tuple(params.features[name].sequences.model_dump().values()) for name in params.datasets}
    assert sizes["gauss2"] == (80_000, 2_000, 80_000)
    assert sizes["gauss3"] == (60_000, 6_000, 120_000)
    assert sizes["oscillating"] == (20_000, 2_000, 80_000)


def test_splits_have_different_sequences():
    section = read_params(ROOT / "params.yaml").features["oscillating"]
    train, test = section.problem("train"), section.problem("test")
    assert not (train.batch(0).evidence == test.batch(0).evidence).all()


def changed(path, value):
    params = good()
    *parents, last = path.split(".")
    node = params
    for key in parents:
        node = node[key]
    if value is ...:
        del node[last]
    else:
        node[last] = value
    return params


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("boundary.gauss2.cost", 0.2, "`boundary.gauss2.cost` must be a known key"),
        ("boundary.gauss2.costs", ..., "`boundary.gauss2.costs` must be given"),
        ("boundary.gauss2", ..., "`boundary.gauss2` must be given"),
        ("features.gauss2", ..., "`features.gauss2` must be given"),
        ("features.gauss2.kind", ..., "`features.gauss2.kind` must be given"),
        ("boundary.gauss3.method", ..., "`boundary.gauss3.method` must be given"),
        ("features.gauss2.kind", "cauchy", "cauchy"),
        ("evaluation", ..., "`evaluation` must be given"),
        ("surprise", 1, "`surprise` must be a known key"),
        ("boundary.gauss2.costs", [0.0], "gauss2: costs.*positive"),
        ("boundary.gauss2.costs", [50.0], "gauss2: costs.*observe twice"),
        ("boundary.gauss2.costs", "cheap", "boundary.gauss2.costs"),
        ("boundary.gauss2.penalty", [1.0, 2.0, 3.0], "gauss2: penalty.*vector"),
        ("boundary.gauss2.penalty", [[0.0, 1.0], [1.0]], "gauss2: penalty.*numeric array"),
        ("boundary.gauss2.penalty", "ten", "^`boundary.gauss2.penalty`"),
        ("boundary.gauss2.penalty", -1.0, "gauss2: penalty.*non-negative"),
        ("boundary.gauss2.method", "magic", "boundary.gauss2.method.*'magic'"),
        ("boundary.gauss2.points", 1, "gauss2: points"),
        ("boundary.gauss3.solver", "line", "boundary.gauss3.solver"),
        ("boundary.gauss3.temperature", 0.5, "boundary.gauss3.temperature"),
        ("boundary.gauss3.confidence", 1.0, "boundary.gauss3.confidence"),
        ("boundary.gauss3.kernel", "linear", "boundary.gauss3.kernel"),
        ("boundary.gauss3.pieces", 3, "`boundary.gauss3.pieces` must be a known key"),
        ("boundary.gauss2.solver", "magic", "boundary.gauss2.solver"),
        ("boundary.gauss2.compression", "zip", "boundary.gauss2.compression"),
        ("boundary.gauss2.statistic", "llr", "boundary.gauss2.statistic"),
        ("features.gauss2.horizon", 1, "features.gauss2.horizon"),
        ("features.gauss2.classes", 1, "features.gauss2.classes"),
        ("features.gauss2.classes", 200, "gauss2: dimension"),
        ("features.gauss2.prior", [0.5, 0.6], "gauss2: prior.*sum to 1"),
        ("features.gauss2.sequences.train", 0, "features.gauss2.sequences.train"),
        ("features.autoregressive.coefficients", [0.5, 1.5], "autoregressive: coefficients.*between"),
        ("tandem.gauss2", ..., "`tandem.gauss2` must be given"),
        ("tandem.gauss2.evidence", "guessed", "`tandem.gauss2.evidence` must be one of.*'guessed'"),
        ("tandem.gauss2.network", {}, "`tandem.gauss2.network` must be a known key"),
        ("tandem.autoregressive.network.order", ..., "`tandem.autoregressive.network.order` must be given"),
        ("tandem.autoregressive.network.order", 50, "autoregressive: order.*below the 50"),
        ("tandem.autoregressive.network.depth", 2, "`tandem.autoregressive.network.depth` must be a known key"),
        ("tandem.autoregressive.training.batch", 20_001, "autoregressive: batch.*at most the 20000"),
        ("tandem.autoregressive.training.optimizer", "sgd", "tandem.autoregressive.training.optimizer"),
        ("tandem.autoregressive.training.learning_rate", 0, "tandem.autoregressive.training.learning_rate"),
        ("tandem.autoregressive.training.shift", 50, "autoregressive: shift.*below the 50"),
        ("tandem.autoregressive.training.noise", -1, "tandem.autoregressive.training.noise"),
        ("tandem.digits", {"evidence": "given"}, "digits: evidence.*learned"),
        (
            "features.digits.windows",
            {"segment": 3, "window": 3, "stride": 1, "hop": None},
            "digits: segment.*two windows",
        ),
        ("features.digits.split.validation", 1.5, "features.digits.split.validation"),
        ("features.digits.split.by", "speaker", "features.digits.split.by"),
        ("features.digits.scaling", ..., "`features.digits.scaling` must be given"),
        ("features.digits.path", "here", "`features.digits.path` must be a known key"),
        ("boundary.digits.fit_on", "test", "boundary.digits.fit_on"),
        ("evaluation.calibration_limit", 0, "evaluation.calibration_limit"),
        ("evaluation.risk_gap_limit", 0, "evaluation.risk_gap_limit"),
        ("evaluation.risk_gap_limit", ..., "`evaluation.risk_gap_limit` must be given"),
        ("tuning.space", "gaussian", "tuning.space"),
        ("runner.kind", "carrier pigeon", "runner.kind"),
        ("schedule", ..., "`schedule` must be given"),
        ("schedule.cron", ..., "`schedule.cron` must be given"),
        ("schedule.cron", 3, "`schedule.cron`"),
        ("schedule.cron", "", "`schedule.cron` must have five fields"),
        ("schedule.cron", "@daily", "`schedule.cron` must have five fields.*0 3"),
        ("schedule.cron", "0 0 3 * * *", "`schedule.cron` must have five fields"),
        ("schedule.cron", "60 3 * * *", "schedule.cron.*minute.*0 to 59.*'60'"),
        ("schedule.cron", "0 3-1 * * *", "schedule.cron.*hour"),
        ("schedule.cron", "*/0 * * * *", "schedule.cron.*minute"),
        ("schedule.cron", "0 3 0 * *", "schedule.cron.*day of the month"),
        ("schedule.cron", "0 3 * smarch *", "schedule.cron.*month.*smarch"),
        ("schedule.cron", "0 3 * * 1,", "schedule.cron.*day of the week"),
        ("schedule.cron", "0 3 30,31 2 *", "schedule.cron.*day that its months have"),
        ("schedule.timezone", "Mars/Olympus", "schedule.timezone.*time zone.*Mars"),
        ("schedule.timezone", "../etc", "schedule.timezone.*time zone"),
        ("schedule.paused", "perhaps", "schedule.paused"),
        ("schedule.prefect_port", 70_000, "schedule.prefect_port"),
        ("schedule.mlflow_port", 4200, "schedule.mlflow_port.*differ"),
        ("datasets", [], "datasets"),
        ("datasets", ["sources"], "`datasets` must be names of folders"),
        ("datasets", ["nothing"], "`features.nothing` must be given"),
    ],
)
def test_each_slip_is_one_clear_line(tmp_path, path, value, message):
    with pytest.raises(ParameterError, match=message) as caught:
        read(tmp_path, changed(path, value))
    assert "\n" not in str(caught.value)
    assert re.match(r"`[^`]+` must .*; got ", str(caught.value))


@pytest.mark.parametrize(
    "cron",
    ["* * * * *", "*/5 0-6/2 1,15 jan-mar,12 mon-fri", "59 23 31 12 7", "0 3 29 2 *", "0 3 31 2 sun", "  1 2  * * * "],
)
def test_what_we_take_for_cron_prefect_takes_too(tmp_path, cron):
    from prefect.client.schemas.schedules import CronSchedule

    schedule = read(tmp_path, changed("schedule.cron", cron)).schedule
    assert CronSchedule(cron=schedule.cron, timezone=schedule.timezone).cron == cron


def test_two_ports_may_both_be_any(tmp_path):
    params = changed("schedule.prefect_port", 0)
    params["schedule"]["mlflow_port"] = 0
    assert read(tmp_path, params).schedule.mlflow_port == 0


def test_a_line_has_two_classes(tmp_path):
    params = good()
    params["boundary"]["gauss3"] = params["boundary"]["gauss2"] | {"solver": "line"}
    with pytest.raises(ParameterError, match="gauss3: solver"):
        read(tmp_path, params)


@pytest.mark.parametrize("key", ["arrays", "path", "split"])
def test_a_missing_key_is_named_though_a_kind_is_called_the_same(tmp_path, key):
    params = yaml.safe_load((ROOT / "params" / "real.yaml").read_text())
    del params["features"]["forda"][key]
    with pytest.raises(ParameterError, match=rf"`features\.forda\.{key}` must be given"):
        read(tmp_path, params)


def test_evidence_is_learned_from_features_alone(tmp_path):
    params = good()
    params["tandem"]["oscillating"] = params["tandem"]["autoregressive"]
    with pytest.raises(ParameterError, match=r"oscillating: evidence.*given.*no features"):
        read(tmp_path, params)


class TestWritingParams:
    def test_comments_and_all_else_stay(self, tmp_path):
        file = tmp_path / "params.yaml"
        file.write_text((ROOT / "params.yaml").read_text())
        section = good()["tandem"]["autoregressive"]
        section["network"]["order"] = 3
        replace_section(file, "tandem", "autoregressive", section)
        after, before = file.read_text().splitlines(), (ROOT / "params.yaml").read_text().splitlines()
        assert [line for line in after if line not in before] == [
            "      order: 3 # observations that the series remembers"
        ]
        assert len(after) == len(before)
        assert list(tmp_path.iterdir()) == [file]

    @pytest.mark.parametrize("comment", ["# at the margin\n", "  # where data sets stand\n", "        # deep\n", "\n"])
    def test_comments_anywhere_do_not_hide_keys(self, tmp_path, comment):
        file = tmp_path / "params.yaml"
        lines = (ROOT / "params.yaml").read_text().splitlines(keepends=True)
        place = next(i for i, line in enumerate(lines) if "order: 1" in line)
        file.write_text("".join([*lines[:place], comment, *lines[place:]]))
        section = good()["tandem"]["autoregressive"]
        section["network"]["order"] = 7
        replace_section(file, "tandem", "autoregressive", section)
        assert yaml.safe_load(file.read_text())["tandem"]["autoregressive"] == section
        assert file.read_text().count("order:") == (ROOT / "params.yaml").read_text().count("order:")

    def test_references_are_refused(self, tmp_path):
        file = tmp_path / "params.yaml"
        text = (ROOT / "params.yaml").read_text()
        text = text.replace("  gauss2:\n    evidence: given", "  gauss2: &same\n    evidence: given")
        text = text.replace("  gauss3:\n    evidence: given\n", "  gauss3: *same\n")
        file.write_text(text)
        with pytest.raises(ParameterError, match=r"tandem.gauss3.*references"):
            replace_section(file, "tandem", "gauss3", good()["tandem"]["autoregressive"])
        assert file.read_text() == text

    def test_given_becomes_learned(self, tmp_path):
        file = tmp_path / "params.yaml"
        file.write_text((ROOT / "params.yaml").read_text())
        section = good()["tandem"]["autoregressive"]
        replace_section(file, "tandem", "gauss2", section)
        assert yaml.safe_load(file.read_text())["tandem"]["gauss2"] == section
        assert yaml.safe_load(file.read_text())["boundary"] == good()["boundary"]

    def test_what_could_not_be_read_back_is_not_written(self, tmp_path):
        file = tmp_path / "params.yaml"
        file.write_text((ROOT / "params.yaml").read_text())
        with pytest.raises(ParameterError):
            replace_section(file, "tandem", "gauss2", {"evidence": "guessed"})
        assert file.read_text() == (ROOT / "params.yaml").read_text()
        assert list(tmp_path.iterdir()) == [file]


def test_missing_and_broken_files_are_refused(tmp_path):
    with pytest.raises(ParameterError, match="no such file"):
        read_params(tmp_path / "params.yaml")
    (tmp_path / "params.yaml").write_text("a: [1")
    with pytest.raises(ParameterError, match="be YAML"):
        read_params(tmp_path / "params.yaml")
    (tmp_path / "params.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(ParameterError, match="be YAML"):
        read_params(tmp_path / "params.yaml")
    (tmp_path / "params.yaml").write_text("just text")
    with pytest.raises(ParameterError):
        read_params(tmp_path / "params.yaml")


def test_unknown_data_sets_are_refused():
    params = read_params(ROOT / "params.yaml")
    assert check_dataset_name(params, "gauss2") == "gauss2"
    with pytest.raises(ParameterError, match="one of"):
        check_dataset_name(params, "gauss9")
