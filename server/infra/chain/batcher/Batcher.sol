// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/**
 * Relays many EIP-3009 transfers of one token in one transaction, each in a call of its own that may fail alone.
 *
 * It has no owner, no state, no money and no rights. Anybody may relay, because an authorization itself names payer and
 * payee, and the token does not check who relays it. Money sent to this address is lost. It only ever calls the token's
 * `transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,uint8,bytes32,bytes32)`: nobody can use it
 * to approve, to spend an approval, or to call any other function. It does not implement ERC-1271, so no authorization
 * in its own name is ever valid.
 *
 * The token's logs show which transfers took place. The result has one byte per call: whether it did not revert.
 */
contract Batcher {
    /**
     * `packed`, without gaps:
     *   token 20, gas for each call 4, widths 4 x 1, bases 4 x 32
     *   for each transfer: from 20, nonce 32, r 32, s 32, and to, value, validAfter, validBefore, each in as many bytes as
     *   its width
     * Each of these four values is its base plus the transfer's own part: with width 0 it is the same for all. The
     * highest bit of `s`, which is 0 in every valid one, is 1 if v is 28.
     */
    function relay(bytes calldata packed) external returns (bytes memory) {
        // The assembly returns itself, so it may use memory from 0. 0x000: the call; 0x140: the shift of each of the four
        // fields; 0x1c0: where each but the first starts in a transfer; 0x220: the bases; 0x2a0: the result.
        assembly {
            if lt(packed.length, 156) { revert(0, 0) }
            let at := packed.offset
            let head := calldataload(at)
            let size := 116
            for { let field := 0 } lt(field, 4) { field := add(field, 1) } {
                let width := byte(add(24, field), head)
                if gt(width, 32) { revert(0, 0) }
                mstore(add(0x140, shl(5, field)), sub(256, shl(3, width)))
                size := add(size, width)
                // The last one is the end of the transfer, and is overwritten by the first base.
                mstore(add(0x1c0, shl(5, field)), size)
            }
            calldatacopy(0x220, add(at, 28), 128)
            let count := div(sub(packed.length, 156), size)
            if iszero(eq(add(156, mul(count, size)), packed.length)) { revert(0, 0) }
            mstore(0x2a0, 0x20)
            mstore(0x2c0, count)
            mstore(0, 0xe3ee160e00000000000000000000000000000000000000000000000000000000)
            let token := shr(96, head)
            let limit := and(shr(64, head), 0xffffffff)
            at := add(at, 156)
            for { let answer := 0x2e0 } count { count := sub(count, 1) } {
                mstore(0x04, shr(96, calldataload(at)))
                mstore(0x24, add(mload(0x220), shr(mload(0x140), calldataload(add(at, 116)))))
                mstore(0x44, add(mload(0x240), shr(mload(0x160), calldataload(add(at, mload(0x1c0))))))
                mstore(0x64, add(mload(0x260), shr(mload(0x180), calldataload(add(at, mload(0x1e0))))))
                mstore(0x84, add(mload(0x280), shr(mload(0x1a0), calldataload(add(at, mload(0x200))))))
                mstore(0xa4, calldataload(add(at, 20)))
                let s := calldataload(add(at, 84))
                mstore(0xc4, add(27, shr(255, s)))
                mstore(0xe4, calldataload(add(at, 52)))
                mstore(0x104, shr(1, shl(1, s)))
                // Return data is not copied, so a token that returns endless data costs nothing.
                mstore8(answer, call(limit, token, 0, 0, 0x124, 0, 0))
                answer := add(answer, 1)
                at := add(at, size)
            }
            return(0x2a0, and(add(0x5f, mload(0x2c0)), not(0x1f)))
        }
    }
}
