// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";

/** How a wallet answers when asked about a signature. Everything past `Honest` is an attack or a fault. */
enum Mode {
    Honest, // the owner's signature, nothing else
    WrongValue, // always answers with another value than the standard's
    Reverts, // always reverts
    BurnsAllGas, // never answers
    Expensive, // the owner's signature, after spending about 600,000 gas
    TwoFaced, // the owner's signature, but only in a free simulation: refuses in a real transaction
    Anything, // accepts every signature
    ApprovedHash // a hash approved beforehand, shown as a Safe has it: 65 bytes of owner, nothing, v = 1
}

/** A smart wallet (ERC-1271) with one owner, for tests. */
contract TestWallet {
    bytes4 private constant MAGIC = 0x1626ba7e;

    address public immutable owner;
    Mode public mode;
    mapping(bytes32 => bool) public approved;

    constructor(address owner_, Mode mode_) {
        owner = owner_;
        mode = mode_;
    }

    function setMode(Mode mode_) external {
        mode = mode_;
    }

    function approveHash(bytes32 hash) external {
        require(msg.sender == owner, "TestWallet: not the owner");
        approved[hash] = true;
    }

    function isValidSignature(bytes32 hash, bytes calldata signature) external view returns (bytes4) {
        Mode current = mode;
        if (current == Mode.Anything) return MAGIC;
        if (current == Mode.WrongValue) return 0xdeadbeef;
        require(current != Mode.Reverts, "TestWallet: no");
        if (current == Mode.BurnsAllGas) {
            while (true) {}
        }
        if (current == Mode.TwoFaced && tx.gasprice > 0) return 0xffffffff;
        if (current == Mode.Expensive) {
            uint256 until = gasleft() > 600_000 ? gasleft() - 600_000 : 0;
            while (gasleft() > until) {}
        }
        if (current == Mode.ApprovedHash) {
            bytes memory shown = abi.encodePacked(uint256(uint160(owner)), uint256(0), uint8(1));
            return approved[hash] && keccak256(signature) == keccak256(shown) ? MAGIC : bytes4(0xffffffff);
        }
        (address signer, ECDSA.RecoverError problem, ) = ECDSA.tryRecover(hash, signature);
        return problem == ECDSA.RecoverError.NoError && signer == owner ? MAGIC : bytes4(0xffffffff);
    }
}

/** Deploys wallets at addresses known beforehand, so that a wallet can sign before it exists (ERC-6492). */
contract TestWalletFactory {
    event Created(address wallet);

    function create(address owner, Mode mode, bytes32 salt) external returns (address wallet) {
        wallet = addressOf(owner, mode, salt);
        if (wallet.code.length > 0) return wallet;
        new TestWallet{salt: salt}(owner, mode);
        emit Created(wallet);
    }

    function addressOf(address owner, Mode mode, bytes32 salt) public view returns (address) {
        bytes32 code = keccak256(abi.encodePacked(type(TestWallet).creationCode, abi.encode(owner, mode)));
        return address(uint160(uint256(keccak256(abi.encodePacked(hex"ff", address(this), salt, code)))));
    }
}
