// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";

/** A token for tests: anybody may mint it, and what arrives can differ, or a transfer can call somebody. */
contract TestToken is ERC20 {
    /// So much more than was sent arrives, or less where it is negative.
    int256 public surplus;
    address private _called;
    bytes private _data;
    /// How many calls from within a transfer succeeded, and what the last that failed returned.
    uint256 public answered;
    bytes public refusal;

    constructor() ERC20("Test", "TEST") {}

    function mint(address to, uint256 amount) external {
        _mint(to, amount);
    }

    function setSurplus(int256 surplus_) external {
        surplus = surplus_;
    }

    /// Calls nobody where the address is zero.
    function callFromTransfers(address called, bytes calldata data) external {
        (_called, _data, answered, refusal) = (called, data, 0, "");
    }

    /// ERC-3009 that asks for no signature.
    function receiveWithAuthorization(
        address from,
        address to,
        uint256 value,
        uint256,
        uint256,
        bytes32,
        bytes memory
    ) external {
        _transfer(from, to, value);
    }

    function _update(address from, address to, uint256 value) internal override {
        super._update(from, to, value);
        if (from == address(0) || to == address(0)) return;
        if (surplus > 0) _mint(to, uint256(surplus));
        if (surplus < 0) _burn(to, uint256(-surplus));
        if (_called == address(0)) return;
        (bool succeeded, bytes memory result) = _called.call(_data);
        if (succeeded) ++answered;
        else refusal = result;
    }
}
