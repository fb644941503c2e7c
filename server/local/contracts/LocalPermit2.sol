// SPDX-License-Identifier: MIT
//
// Permit2 and x402's two proxies of it, for the local chain. This is our own source, written from what is published:
// Permit2's documented interface and typed data, and the proxies' ABI and types in npm's @x402/evm. It behaves like the
// deployed contracts where it matters to Purser (order of checks, errors, events, signature rules), and has only the
// functions that payments use.
//
// As with LocalUsdc, each contract's code is placed at its published address without running a constructor: no
// immutables, and the domain is computed at run time.
pragma solidity 0.8.37;

import {IERC1271} from "@openzeppelin/contracts/interfaces/IERC1271.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {IERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/IERC20Permit.sol";
import {MessageHashUtils} from "@openzeppelin/contracts/utils/cryptography/MessageHashUtils.sol";
import {ReentrancyGuard} from "@openzeppelin/contracts/utils/ReentrancyGuard.sol";

contract LocalPermit2 {
    struct TokenPermissions {
        address token;
        uint256 amount;
    }

    struct PermitTransferFrom {
        TokenPermissions permitted;
        uint256 nonce;
        uint256 deadline;
    }

    struct SignatureTransferDetails {
        address to;
        uint256 requestedAmount;
    }

    event UnorderedNonceInvalidation(address indexed owner, uint256 word, uint256 mask);

    error SignatureExpired(uint256 signatureDeadline);
    error InvalidAmount(uint256 maxAmount);
    error InvalidNonce();
    error InvalidSignatureLength();
    error InvalidSignature();
    error InvalidSigner();
    error InvalidContractSignature();

    bytes32 private constant DOMAIN_TYPEHASH =
        keccak256("EIP712Domain(string name,uint256 chainId,address verifyingContract)");
    bytes32 private constant NAME_HASH = keccak256("Permit2");
    bytes32 private constant TOKEN_PERMISSIONS_TYPEHASH = keccak256("TokenPermissions(address token,uint256 amount)");
    /// A witness's type is chosen by the spender, so the type of the whole message ends with the spender's text.
    string private constant PERMIT_TYPE_STUB =
        "PermitWitnessTransferFrom(TokenPermissions permitted,address spender,uint256 nonce,uint256 deadline,";

    /// One bit for each nonce, 256 of them in a word: 1 if it is used or given up.
    mapping(address owner => mapping(uint256 word => uint256)) public nonceBitmap;

    function DOMAIN_SEPARATOR() public view returns (bytes32) {
        return keccak256(abi.encode(DOMAIN_TYPEHASH, NAME_HASH, block.chainid, address(this)));
    }

    function invalidateUnorderedNonces(uint256 word, uint256 mask) external {
        nonceBitmap[msg.sender][word] |= mask;
        emit UnorderedNonceInvalidation(msg.sender, word, mask);
    }

    /// The caller is the spender that the owner signed for.
    function permitWitnessTransferFrom(
        PermitTransferFrom calldata permit,
        SignatureTransferDetails calldata details,
        address owner,
        bytes32 witness,
        string calldata witnessTypeString,
        bytes calldata signature
    ) external {
        if (block.timestamp > permit.deadline) revert SignatureExpired(permit.deadline);
        if (details.requestedAmount > permit.permitted.amount) revert InvalidAmount(permit.permitted.amount);
        _useNonce(owner, permit.nonce);
        bytes32 message = keccak256(
            abi.encode(
                keccak256(abi.encodePacked(PERMIT_TYPE_STUB, witnessTypeString)),
                keccak256(abi.encode(TOKEN_PERMISSIONS_TYPEHASH, permit.permitted.token, permit.permitted.amount)),
                msg.sender,
                permit.nonce,
                permit.deadline,
                witness
            )
        );
        _checkSignature(owner, MessageHashUtils.toTypedDataHash(DOMAIN_SEPARATOR(), message), signature);
        _transferFrom(permit.permitted.token, owner, details.to, details.requestedAmount);
    }

    function _useNonce(address owner, uint256 nonce) private {
        uint256 bit = 1 << (nonce & 0xff);
        uint256 used = nonceBitmap[owner][nonce >> 8];
        if (used & bit != 0) revert InvalidNonce();
        nonceBitmap[owner][nonce >> 8] = used | bit;
    }

    /// Signatures of an account with code (also a delegated EOA) are verified by ERC-1271, all others by ecrecover.
    function _checkSignature(address signer, bytes32 digest, bytes calldata signature) private view {
        if (signer.code.length > 0) {
            bytes4 result = IERC1271(signer).isValidSignature(digest, signature);
            if (result != IERC1271.isValidSignature.selector) revert InvalidContractSignature();
            return;
        }
        address recovered = _recover(digest, signature);
        if (recovered == address(0)) revert InvalidSignature();
        if (recovered != signer) revert InvalidSigner();
    }

    /// 65 bytes, or 64 as in EIP-2098. A high `s` counts too: the nonce, not the signature, prevents a second use.
    function _recover(bytes32 digest, bytes calldata signature) private pure returns (address) {
        if (signature.length != 65 && signature.length != 64) revert InvalidSignatureLength();
        bytes32 r = bytes32(signature[:32]);
        bytes32 s = bytes32(signature[32:64]);
        if (signature.length == 65) return ecrecover(digest, uint8(signature[64]), r, s);
        uint8 v = uint8(27 + (uint256(s) >> 255));
        return ecrecover(digest, v, r, s & bytes32(type(uint256).max >> 1));
    }

    /// A token must return true or nothing. An address without code returns nothing.
    function _transferFrom(address token, address from, address to, uint256 amount) private {
        (bool isDone, bytes memory result) = token.call(abi.encodeCall(IERC20.transferFrom, (from, to, amount)));
        bool isTrue = result.length == 0 || (result.length >= 32 && abi.decode(result, (uint256)) == 1);
        require(isDone && isTrue, "TRANSFER_FROM_FAILED");
    }
}

/// What both proxies do. A proxy is the spender of a Permit2 payment, and pays only the payee that the owner signed.
abstract contract LocalPermit2Proxy is ReentrancyGuard {
    struct EIP2612Permit {
        uint256 value;
        uint256 deadline;
        bytes32 r;
        bytes32 s;
        uint8 v;
    }

    struct Payment {
        uint256 amount;
        address owner;
        address to;
        uint256 validAfter;
        bytes32 witness;
        string witnessTypeString;
    }

    event Settled();
    event SettledWithPermit();
    event EIP2612PermitFailedWithReason(address indexed token, address indexed owner, string reason);
    event EIP2612PermitFailedWithPanic(address indexed token, address indexed owner, uint256 errorCode);
    event EIP2612PermitFailedWithData(address indexed token, address indexed owner, bytes data);

    error InvalidAmount();
    error InvalidDestination();
    error InvalidOwner();
    error PaymentTooEarly();
    error Permit2612AmountMismatch();

    LocalPermit2 public constant PERMIT2 = LocalPermit2(0x000000000022D473030F116dDEE9F6B43aC78BA3);

    function _settle(
        LocalPermit2.PermitTransferFrom calldata permit,
        Payment memory payment,
        bytes calldata signature
    ) internal {
        if (payment.amount == 0) revert InvalidAmount();
        if (payment.owner == address(0)) revert InvalidOwner();
        if (payment.to == address(0)) revert InvalidDestination();
        if (block.timestamp < payment.validAfter) revert PaymentTooEarly();
        PERMIT2.permitWitnessTransferFrom(
            permit,
            LocalPermit2.SignatureTransferDetails(payment.to, payment.amount),
            payment.owner,
            payment.witness,
            payment.witnessTypeString,
            signature
        );
    }

    /// A permit that fails ends nothing: somebody may have sent it before, and then the allowance is there.
    function _permit(
        EIP2612Permit calldata permit2612,
        LocalPermit2.PermitTransferFrom calldata permit,
        address owner
    ) internal {
        (uint256 value, uint256 deadline) = (permit2612.value, permit2612.deadline);
        if (value != permit.permitted.amount) revert Permit2612AmountMismatch();
        address token = permit.permitted.token;
        try
            IERC20Permit(token).permit(
                owner,
                address(PERMIT2),
                value,
                deadline,
                permit2612.v,
                permit2612.r,
                permit2612.s
            )
        {} catch Error(string memory reason) {
            emit EIP2612PermitFailedWithReason(token, owner, reason);
        } catch Panic(uint256 errorCode) {
            emit EIP2612PermitFailedWithPanic(token, owner, errorCode);
        } catch (bytes memory data) {
            emit EIP2612PermitFailedWithData(token, owner, data);
        }
    }
}

/// x402ExactPermit2Proxy: moves exactly the signed amount. Anybody may send it.
contract LocalExactPermit2Proxy is LocalPermit2Proxy {
    struct Witness {
        address to;
        uint256 validAfter;
    }

    string public constant WITNESS_TYPE_STRING =
        "Witness witness)TokenPermissions(address token,uint256 amount)Witness(address to,uint256 validAfter)";
    bytes32 public constant WITNESS_TYPEHASH = keccak256("Witness(address to,uint256 validAfter)");

    function settle(
        LocalPermit2.PermitTransferFrom calldata permit,
        address owner,
        Witness calldata witness,
        bytes calldata signature
    ) external nonReentrant {
        _settle(permit, _payment(permit, owner, witness), signature);
        emit Settled();
    }

    function settleWithPermit(
        EIP2612Permit calldata permit2612,
        LocalPermit2.PermitTransferFrom calldata permit,
        address owner,
        Witness calldata witness,
        bytes calldata signature
    ) external nonReentrant {
        _permit(permit2612, permit, owner);
        _settle(permit, _payment(permit, owner, witness), signature);
        emit SettledWithPermit();
    }

    function _payment(
        LocalPermit2.PermitTransferFrom calldata permit,
        address owner,
        Witness calldata witness
    ) private pure returns (Payment memory) {
        bytes32 hash = keccak256(abi.encode(WITNESS_TYPEHASH, witness.to, witness.validAfter));
        return
            Payment(permit.permitted.amount, owner, witness.to, witness.validAfter, hash, WITNESS_TYPE_STRING);
    }
}

/// x402UptoPermit2Proxy: moves at most the signed amount. Only the account that the owner named may send it.
contract LocalUptoPermit2Proxy is LocalPermit2Proxy {
    struct Witness {
        address to;
        address facilitator;
        uint256 validAfter;
    }

    error AmountExceedsPermitted();
    error UnauthorizedFacilitator();

    string public constant WITNESS_TYPE_STRING =
        "Witness witness)TokenPermissions(address token,uint256 amount)Witness(address to,address facilitator,uint256 validAfter)";
    bytes32 public constant WITNESS_TYPEHASH =
        keccak256("Witness(address to,address facilitator,uint256 validAfter)");

    function settle(
        LocalPermit2.PermitTransferFrom calldata permit,
        uint256 amount,
        address owner,
        Witness calldata witness,
        bytes calldata signature
    ) external nonReentrant {
        _settle(permit, _payment(permit, amount, owner, witness), signature);
        emit Settled();
    }

    function settleWithPermit(
        EIP2612Permit calldata permit2612,
        LocalPermit2.PermitTransferFrom calldata permit,
        uint256 amount,
        address owner,
        Witness calldata witness,
        bytes calldata signature
    ) external nonReentrant {
        Payment memory payment = _payment(permit, amount, owner, witness);
        _permit(permit2612, permit, owner);
        _settle(permit, payment, signature);
        emit SettledWithPermit();
    }

    function _payment(
        LocalPermit2.PermitTransferFrom calldata permit,
        uint256 amount,
        address owner,
        Witness calldata witness
    ) private view returns (Payment memory) {
        if (amount > permit.permitted.amount) revert AmountExceedsPermitted();
        if (msg.sender != witness.facilitator) revert UnauthorizedFacilitator();
        bytes32 hash = keccak256(
            abi.encode(WITNESS_TYPEHASH, witness.to, witness.facilitator, witness.validAfter)
        );
        return Payment(amount, owner, witness.to, witness.validAfter, hash, WITNESS_TYPE_STRING);
    }
}
