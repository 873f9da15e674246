// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.20;

import "./Token.sol";

/// Answers `false` instead of reverting and moves nothing: the receipt says success.
contract FalseToken is Token("False", "FALSE") {
    function transfer(address, uint256) external pure override returns (bool) {
        return false;
    }
}

/// Keeps one per cent of each transfer: the receiver gets less than was sent, and the log says so.
contract FeeToken is Token("Fee", "FEE") {
    address public constant COLLECTOR = address(0xFEE);

    function transfer(address to, uint256 value) external override returns (bool) {
        uint256 fee = value / 100;
        move(msg.sender, COLLECTOR, fee);
        move(msg.sender, to, value - fee);
        return true;
    }
}

/// Announces the whole amount, then takes one per cent back from the receiver.
contract ClawbackToken is Token("Clawback", "CLAW") {
    address public constant COLLECTOR = address(0xFEE);

    function transfer(address to, uint256 value) external override returns (bool) {
        move(msg.sender, to, value);
        move(to, COLLECTOR, value / 100);
        return true;
    }
}

/// Moves the balance and announces nothing.
contract SilentToken is Token("Silent", "SILENT") {
    function transfer(address to, uint256 value) external override returns (bool) {
        settle(msg.sender, to, value);
        return true;
    }
}

/// Moves nothing itself and has another contract announce the transfer: a forged log.
contract ForgedToken is Token("Forged", "FORGED") {
    Announcer public immutable announcer = new Announcer();

    function transfer(address to, uint256 value) external override returns (bool) {
        announcer.announce(msg.sender, to, value);
        return true;
    }
}

contract Announcer {
    event Transfer(address indexed from, address indexed to, uint256 value);

    function announce(address from, address to, uint256 value) external {
        emit Transfer(from, to, value);
    }
}
