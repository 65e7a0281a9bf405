"""Bases of a store that many hosts write at the same time."""

from __future__ import annotations

import time

import pytest
from test_sharing import add, log_of, total
from waiting import until

import statelog
from statelog.fleet import bases, connect, shared_store
from statelog.fleet.restores import head_to_read


@pytest.mark.slow
def test_a_new_host_starts_from_a_base(host, monkeypatch, postgres_url, name, tmp_path):
    monkeypatch.setattr(shared_store, "_SEGMENTS_MAX", 8)
    a, b = host("a"), host("b")
    for n in range(50):
        add(a if n % 3 else b)
        time.sleep(0.005)
    until(lambda: [add(store, by=0) for store in (a, b)] and a.remote._head.base and b.remote._head.base)
    add(b)
    assert b.remote._head.base.lsn > 8
    assert total(host("c")) == total(a) == 51
    with connect(postgres_url, tmp_path / "x") as fleet:
        assert fleet.check(name) == []
        fleet.restore(name, tmp_path / "then", at=5)
    with statelog.open(tmp_path / "then", read_only=True) as then:
        assert then.last_lsn == 5
    assert log_of(a)[:5] == log_of(host("d"))[:5]


@pytest.mark.slow
def test_records_appended_while_a_base_is_made_are_kept(host, monkeypatch, postgres_url, name, tmp_path):
    a, b = host("a", poll_s=60), host("b", poll_s=60)
    monkeypatch.setattr(shared_store, "_SEGMENTS_MAX", 5)
    for _n in range(4):
        add(a)
    real = bases.image
    with connect(postgres_url, tmp_path / "x") as fleet, fleet.follow(name, poll_s=60) as copy:

        def image(store, path, epoch):
            monkeypatch.setattr(bases, "image", real)  # Only of this base. There may be another one.
            add(b)
            copy.remote.wait()  # Records from here on are between the cut and the base.
            for _n in range(3):
                add(b)
            a.remote.wait()
            return real(store, path, epoch)

        monkeypatch.setattr(bases, "image", image)
        add(a)
        a.remote.wait()
        until(lambda: head_to_read(a.remote._performer).base)
        base = head_to_read(a.remote._performer).base
        add(b)
        copy.remote.wait()
        assert log_of(copy) == log_of(b)
        for at in range(copy.last_lsn):
            fleet.restore(name, tmp_path / f"{at}", at=at)
            with statelog.open(tmp_path / f"{at}", read_only=True) as then:
                assert at in {1, then.last_lsn}  # The first two records are one commit.
                assert log_of(then) == log_of(b)[: then.last_lsn]
        assert 9 < base.lsn < copy.last_lsn
        assert fleet.check(name) == []


@pytest.mark.slow
def test_only_one_of_several_hosts_makes_a_due_base(host, monkeypatch):
    monkeypatch.setattr(shared_store, "_SEGMENTS_MAX", 8)
    epochs, real = [], bases.image

    def image(store, path, epoch):
        epochs.append(epoch)
        time.sleep(0.2)
        return real(store, path, epoch)

    monkeypatch.setattr(bases, "image", image)
    hosts = [host(of) for of in "abcd"]
    for n in range(12):
        add(hosts[n % 4])
    until(lambda: head_to_read(hosts[0].remote._performer).base)
    assert epochs == [2]


@pytest.mark.slow
def test_a_base_is_valid_although_another_was_begun_at_the_same_time(host, monkeypatch, postgres_url, name, tmp_path):
    monkeypatch.setattr(shared_store, "_SEGMENTS_MAX", 8)
    a, b = host("a"), host("b")
    begun, real = [], bases.image

    def image(store, path, epoch):
        base = real(store, path, epoch)
        begun.append(epoch)
        if epoch == 2:
            until(lambda: add(b, by=0) and len(begun) > 1)
        else:
            until(lambda: head_to_read(a.remote._performer).base)
        return base

    monkeypatch.setattr(bases, "image", image)
    with connect(postgres_url, tmp_path / "x") as fleet:

        def encode(listed, _real=bases.encode):
            fleet.gc(name, grace_s=0)  # Its pieces are stored, and no head names them yet.
            return _real(listed)

        monkeypatch.setattr(bases, "encode", encode)
        for _n in range(8):
            add(a)
        a.remote.wait()
        until(lambda: head_to_read(a.remote._performer).base)
        assert begun == [2, 3]
        assert head_to_read(a.remote._performer).base.epoch == 2
        assert log_of(host("c")) == log_of(b)
        assert fleet.check(name) == []
