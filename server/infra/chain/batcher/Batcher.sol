// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

/**
 * Relays many EIP-3009 transfers of one token in one transaction, each by a call of its own that may fail alone.
 *
 * It has no owner, no state, no money and no rights: it does what anybody may do, since an authorization says itself who pays
 * whom, and the token asks for nobody else. Whatever is sent to this address is lost. All it ever calls is the
 * token's `transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,uint8,bytes32,bytes32)`: through it
 * nobody can approve, spend an approval, or reach another function of anything, and it answers no ERC-1271 question, so
 * that no authorization in its own name is ever valid.
 *
 * Which transfers took place is in the token's logs. The answer says which calls returned without a revert, a byte each.
 */
contract Batcher {
    /**
     * `packed`, without gaps:
     *   token 20, gas for each call 4, widths 4 x 1, bases 4 x 32
     *   for each transfer: from 20, nonce 32, r 32, s 32, and to, value, validAfter, validBefore in as many bytes as
     *   their width says
     * Each of these four is its base and what the transfer adds to it: with width 0, it is the same for all. The
     * topmost bit of `s`, which no valid one has, is 1 where v is 28.
     */
    function relay(bytes calldata packed) external returns (bytes memory) {
        // It returns by itself: memory is its own, from 0. 0x000 the call; 0x140 how far to shift each of the four fields,
        // 0x1c0 where each but the first begins in a transfer, 0x220 the bases, 0x2a0 the answer.
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
                // The last is where the transfer ends, and is written over by the first base.
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
                // Nothing of what is returned is copied: an endless answer costs us nothing.
                mstore8(answer, call(limit, token, 0, 0, 0x124, 0, 0))
                answer := add(answer, 1)
                at := add(at, size)
            }
            return(0x2a0, and(add(0x5f, mload(0x2c0)), not(0x1f)))
        }
    }
}
