// SPDX-License-Identifier: MIT
//
// x402's payment channels and the two collectors of their deposits, for the local chain. This is our own source, written
// from what is published: the specification of the scheme "batch-settlement", and the ABI, types and addresses in npm's
// @x402/evm. It behaves like the deployed contracts where it matters to Purser: order of checks, errors, events,
// signature rules.
//
// As with LocalUsdc, each contract's code is placed at its published address without running a constructor: no
// immutables, and the domain is computed at run time.
pragma solidity 0.8.37;

import {IERC5267} from "@openzeppelin/contracts/interfaces/IERC5267.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {IERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/IERC20Permit.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {MessageHashUtils} from "@openzeppelin/contracts/utils/cryptography/MessageHashUtils.sol";
import {SignatureChecker} from "@openzeppelin/contracts/utils/cryptography/SignatureChecker.sol";
import {Multicall} from "@openzeppelin/contracts/utils/Multicall.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {LocalPermit2} from "./LocalPermit2.sol";

/**
 * A payer deposits once and signs vouchers: each names the most that may be claimed from its channel in total. The
 * receiver's side claims, which only counts, and `settle` pays everything claimed at once. Money that is not claimed
 * returns to the payer: at once if the receiver's side agrees (refund), otherwise after the channel's delay (withdrawal).
 *
 * Of each channel, `totalClaimed` never falls and never exceeds `balance`; what is above it is free. So a channel with an
 * empty balance had no claims.
 */
contract LocalBatchSettlement is IERC5267, Multicall, ReentrancyGuardTransient {
    using SafeERC20 for IERC20;

    /// Names a channel; no field can change.
    struct ChannelConfig {
        address payer;
        /// Signs vouchers. Zero: the payer does, also as a contract.
        address payerAuthorizer;
        address receiver;
        /// Signs batches of claims, and refunds.
        address receiverAuthorizer;
        address token;
        uint40 withdrawDelay;
        bytes32 salt;
    }

    struct Voucher {
        ChannelConfig channel;
        uint128 maxClaimableAmount;
    }

    struct VoucherClaim {
        Voucher voucher;
        bytes signature;
        /// Of the channel, from its beginning: the same claim a second time changes nothing.
        uint128 totalClaimed;
    }

    struct Channel {
        /// Deposits less refunds and withdrawals. A claim does not lower it.
        uint128 balance;
        uint128 totalClaimed;
    }

    struct Withdrawal {
        uint128 amount;
        /// Zero: there is none.
        uint40 initiatedAt;
    }

    struct Earnings {
        uint128 totalClaimed;
        uint128 totalSettled;
    }

    event ChannelCreated(bytes32 indexed channelId, ChannelConfig config);
    event ChannelClosed(bytes32 indexed channelId, ChannelConfig config);
    event Deposited(bytes32 indexed channelId, address indexed sender, uint128 amount, uint128 newBalance);
    event Claimed(bytes32 indexed channelId, address indexed sender, uint128 claimAmount, uint128 newTotalClaimed);
    event Settled(address indexed receiver, address indexed token, address indexed sender, uint128 amount);
    event Refunded(bytes32 indexed channelId, address indexed sender, uint128 amount);
    event WithdrawInitiated(bytes32 indexed channelId, uint128 amount, uint40 finalizeAfter);
    event WithdrawFinalized(bytes32 indexed channelId, address indexed sender, uint128 amount);

    error InvalidChannel();
    error ZeroDeposit();
    error DepositOverflow();
    error InvalidSignature();
    error NotReceiverAuthorizer();
    error NotAuthorizedToClaim();
    error NotAuthorizedToRefund();
    error ClaimExceedsCeiling();
    error ClaimExceedsBalance();
    error WithdrawalAlreadyPending();
    error WithdrawalNotPending();
    error NotAuthorizedToFinalizeWithdraw();
    error WithdrawDelayNotElapsed();
    error NothingToWithdraw();
    error WithdrawAmountExceedsAvailable();
    error WithdrawDelayOutOfRange();
    error EmptyBatch();
    error DepositCollectionFailed();
    error InvalidCollector();
    error InvalidRefundNonce();
    error ZeroRefund();

    bytes32 private constant DOMAIN_TYPEHASH =
        keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)");
    bytes32 private constant NAME_HASH = keccak256("x402 Batch Settlement");
    bytes32 private constant VERSION_HASH = keccak256("1");

    bytes32 public constant CHANNEL_CONFIG_TYPEHASH =
        keccak256(
            "ChannelConfig(address payer,address payerAuthorizer,address receiver,address receiverAuthorizer,address token,uint40 withdrawDelay,bytes32 salt)"
        );
    bytes32 public constant VOUCHER_TYPEHASH = keccak256("Voucher(bytes32 channelId,uint128 maxClaimableAmount)");
    bytes32 public constant REFUND_TYPEHASH = keccak256("Refund(bytes32 channelId,uint256 nonce,uint128 amount)");
    bytes32 public constant CLAIM_ENTRY_TYPEHASH =
        keccak256("ClaimEntry(bytes32 channelId,uint128 maxClaimableAmount,uint128 totalClaimed)");
    bytes32 public constant CLAIM_BATCH_TYPEHASH =
        keccak256(
            "ClaimBatch(ClaimEntry[] claims)ClaimEntry(bytes32 channelId,uint128 maxClaimableAmount,uint128 totalClaimed)"
        );
    uint40 public constant MIN_WITHDRAW_DELAY = 15 minutes;
    uint40 public constant MAX_WITHDRAW_DELAY = 30 days;

    mapping(bytes32 channelId => Channel) public channels;
    mapping(bytes32 channelId => Withdrawal) public pendingWithdrawals;
    /// Rises with every refund, also with one that moves nothing: a signed refund is valid once.
    mapping(bytes32 channelId => uint256) public refundNonce;
    mapping(address receiver => mapping(address token => Earnings)) public receivers;

    // --- into a channel ---------------------------------------------------------------------------

    /// Anybody may send it, with any collector: only the tokens that arrive count.
    function deposit(
        ChannelConfig calldata config,
        uint128 amount,
        address collector,
        bytes calldata collectorData
    ) external nonReentrant {
        _checkConfig(config);
        if (amount == 0) revert ZeroDeposit();
        if (collector == address(0)) revert InvalidCollector();
        bytes32 channelId = getChannelId(config);
        Channel memory channel = channels[channelId];
        if (amount > type(uint128).max - channel.balance) revert DepositOverflow();
        bool isEmpty = channel.balance == 0;
        channel.balance += amount;
        channels[channelId] = channel;

        uint256 expected = _held(config.token) + amount;
        LocalDepositCollector(collector).collect(config.payer, config.token, amount, channelId, collectorData);
        if (_held(config.token) != expected) revert DepositCollectionFailed();

        if (isEmpty) emit ChannelCreated(channelId, config);
        emit Deposited(channelId, msg.sender, amount, channel.balance);
    }

    function _checkConfig(ChannelConfig calldata config) private pure {
        if (
            config.payer == address(0) ||
            config.receiver == address(0) ||
            config.receiverAuthorizer == address(0) ||
            config.token == address(0)
        ) revert InvalidChannel();
        uint40 delay = config.withdrawDelay;
        if (delay < MIN_WITHDRAW_DELAY || delay > MAX_WITHDRAW_DELAY) revert WithdrawDelayOutOfRange();
    }

    function _held(address token) private view returns (uint256) {
        return IERC20(token).balanceOf(address(this));
    }

    // --- to the receiver --------------------------------------------------------------------------

    /// All or nothing: one bad claim reverts the batch.
    function claim(VoucherClaim[] calldata voucherClaims) external nonReentrant {
        if (voucherClaims.length == 0) revert EmptyBatch();
        bytes32 domain = _domainSeparator();
        for (uint256 i = 0; i < voucherClaims.length; ++i) {
            ChannelConfig calldata config = voucherClaims[i].voucher.channel;
            if (!_isReceiverSide(config)) revert NotAuthorizedToClaim();
            _claim(domain, _channelId(domain, config), voucherClaims[i]);
        }
    }

    /// Anybody may send what the receivers' common authorizer signed.
    function claimWithSignature(
        VoucherClaim[] calldata voucherClaims,
        bytes calldata authorizerSignature
    ) external nonReentrant {
        if (voucherClaims.length == 0) revert EmptyBatch();
        bytes32 domain = _domainSeparator();
        (bytes32[] memory channelIds, bytes32 digest) = _batch(domain, voucherClaims);
        address authorizer = voucherClaims[0].voucher.channel.receiverAuthorizer;
        _checkSigned(authorizer, digest, authorizerSignature);
        for (uint256 i = 0; i < voucherClaims.length; ++i) {
            if (voucherClaims[i].voucher.channel.receiverAuthorizer != authorizer) revert NotReceiverAuthorizer();
            _claim(domain, channelIds[i], voucherClaims[i]);
        }
    }

    function _claim(bytes32 domain, bytes32 channelId, VoucherClaim calldata row) private {
        Channel memory channel = channels[channelId];
        uint128 total = row.totalClaimed;
        // An old claim changes nothing, so its signature does not matter.
        if (total <= channel.totalClaimed) return;
        if (total > row.voucher.maxClaimableAmount) revert ClaimExceedsCeiling();
        if (total > channel.balance) revert ClaimExceedsBalance();
        ChannelConfig calldata config = row.voucher.channel;
        bytes32 digest = _voucherDigest(domain, channelId, row.voucher.maxClaimableAmount);
        if (config.payerAuthorizer == address(0)) {
            _checkSigned(config.payer, digest, row.signature);
        } else if (ECDSA.recoverCalldata(digest, row.signature) != config.payerAuthorizer) {
            revert InvalidSignature();
        }

        uint128 added = total - channel.totalClaimed;
        channel.totalClaimed = total;
        channels[channelId] = channel;
        receivers[config.receiver][config.token].totalClaimed += added;
        emit Claimed(channelId, msg.sender, added, total);
    }

    /// Anybody may send it. With nothing to pay it does nothing, so that two senders do not disturb each other.
    function settle(address receiver, address token) external nonReentrant {
        Earnings memory earned = receivers[receiver][token];
        uint128 amount = earned.totalClaimed - earned.totalSettled;
        if (amount == 0) return;
        receivers[receiver][token].totalSettled = earned.totalClaimed;
        IERC20(token).safeTransfer(receiver, amount);
        emit Settled(receiver, token, msg.sender, amount);
    }

    // --- back to the payer ------------------------------------------------------------------------

    function refund(ChannelConfig calldata config, uint128 amount) external nonReentrant {
        if (!_isReceiverSide(config)) revert NotAuthorizedToRefund();
        _refund(getChannelId(config), config, amount);
    }

    /// Anybody may send what the receiver's authorizer signed.
    function refundWithSignature(
        ChannelConfig calldata config,
        uint128 amount,
        uint256 nonce,
        bytes calldata receiverAuthorizerSignature
    ) external nonReentrant {
        bytes32 domain = _domainSeparator();
        bytes32 channelId = _channelId(domain, config);
        if (nonce != refundNonce[channelId]) revert InvalidRefundNonce();
        bytes32 digest = _refundDigest(domain, channelId, nonce, amount);
        _checkSigned(config.receiverAuthorizer, digest, receiverAuthorizerSignature);
        _refund(channelId, config, amount);
    }

    function _refund(bytes32 channelId, ChannelConfig calldata config, uint128 amount) private {
        if (amount == 0) revert ZeroRefund();
        ++refundNonce[channelId];
        Channel memory channel = channels[channelId];
        uint128 refunded = _atMost(amount, _free(channel));
        if (refunded == 0) return;
        channel.balance -= refunded;
        channels[channelId] = channel;

        // What the payer asked to withdraw was paid by this, in part or in full.
        Withdrawal memory pending = pendingWithdrawals[channelId];
        if (pending.initiatedAt != 0) {
            if (refunded < pending.amount) pendingWithdrawals[channelId].amount = pending.amount - refunded;
            else delete pendingWithdrawals[channelId];
        }
        emit Refunded(channelId, msg.sender, refunded);
        _pay(channelId, config, channel, refunded);
    }

    /// Only claims that are recorded here reserve money: vouchers not yet claimed do not.
    function initiateWithdraw(ChannelConfig calldata config, uint128 amount) external nonReentrant {
        if (!_isPayerSide(config)) revert InvalidChannel();
        if (amount == 0) revert NothingToWithdraw();
        bytes32 channelId = getChannelId(config);
        if (pendingWithdrawals[channelId].initiatedAt != 0) revert WithdrawalAlreadyPending();
        if (amount > _free(channels[channelId])) revert WithdrawAmountExceedsAvailable();
        uint40 initiatedAt = uint40(block.timestamp);
        pendingWithdrawals[channelId] = Withdrawal(amount, initiatedAt);
        emit WithdrawInitiated(channelId, amount, initiatedAt + config.withdrawDelay);
    }

    /// Pays what is still free, which claims may have lowered.
    function finalizeWithdraw(ChannelConfig calldata config) external nonReentrant {
        if (!_isPayerSide(config)) revert NotAuthorizedToFinalizeWithdraw();
        bytes32 channelId = getChannelId(config);
        Withdrawal memory pending = pendingWithdrawals[channelId];
        if (pending.initiatedAt == 0) revert WithdrawalNotPending();
        if (block.timestamp < uint256(pending.initiatedAt) + config.withdrawDelay) revert WithdrawDelayNotElapsed();
        delete pendingWithdrawals[channelId];
        Channel memory channel = channels[channelId];
        uint128 withdrawn = _atMost(pending.amount, _free(channel));
        channel.balance -= withdrawn;
        channels[channelId] = channel;
        emit WithdrawFinalized(channelId, msg.sender, withdrawn);
        _pay(channelId, config, channel, withdrawn);
    }

    /// Tokens leave last, after everything is recorded.
    function _pay(
        bytes32 channelId,
        ChannelConfig calldata config,
        Channel memory channel,
        uint128 amount
    ) private {
        if (channel.balance == 0) emit ChannelClosed(channelId, config);
        if (amount > 0) IERC20(config.token).safeTransfer(config.payer, amount);
    }

    function _free(Channel memory channel) private pure returns (uint128) {
        return channel.balance - channel.totalClaimed;
    }

    function _atMost(uint128 amount, uint128 most) private pure returns (uint128) {
        return amount < most ? amount : most;
    }

    // --- who signs and sends ----------------------------------------------------------------------

    function _isReceiverSide(ChannelConfig calldata config) private view returns (bool) {
        return msg.sender == config.receiverAuthorizer || msg.sender == config.receiver;
    }

    function _isPayerSide(ChannelConfig calldata config) private view returns (bool) {
        return msg.sender == config.payer || msg.sender == config.payerAuthorizer;
    }

    /// An account with code decides by ERC-1271.
    function _checkSigned(address signer, bytes32 digest, bytes calldata signature) private view {
        if (!SignatureChecker.isValidSignatureNowCalldata(signer, digest, signature)) revert InvalidSignature();
    }

    // --- typed data -------------------------------------------------------------------------------

    function getChannelId(ChannelConfig calldata config) public view returns (bytes32) {
        return _channelId(_domainSeparator(), config);
    }

    function getVoucherDigest(bytes32 channelId, uint128 maxClaimableAmount) external view returns (bytes32) {
        return _voucherDigest(_domainSeparator(), channelId, maxClaimableAmount);
    }

    function getRefundDigest(bytes32 channelId, uint256 nonce, uint128 amount) external view returns (bytes32) {
        return _refundDigest(_domainSeparator(), channelId, nonce, amount);
    }

    function getClaimBatchDigest(VoucherClaim[] calldata voucherClaims) external view returns (bytes32 digest) {
        (, digest) = _batch(_domainSeparator(), voucherClaims);
    }

    function eip712Domain()
        external
        view
        returns (bytes1, string memory, string memory, uint256, address, bytes32, uint256[] memory)
    {
        return (hex"0f", "x402 Batch Settlement", "1", block.chainid, address(this), bytes32(0), new uint256[](0));
    }

    function _domainSeparator() private view returns (bytes32) {
        return keccak256(abi.encode(DOMAIN_TYPEHASH, NAME_HASH, VERSION_HASH, block.chainid, address(this)));
    }

    function _channelId(bytes32 domain, ChannelConfig calldata config) private pure returns (bytes32) {
        return MessageHashUtils.toTypedDataHash(domain, keccak256(abi.encode(CHANNEL_CONFIG_TYPEHASH, config)));
    }

    function _voucherDigest(bytes32 domain, bytes32 channelId, uint128 ceiling) private pure returns (bytes32) {
        bytes32 message = keccak256(abi.encode(VOUCHER_TYPEHASH, channelId, ceiling));
        return MessageHashUtils.toTypedDataHash(domain, message);
    }

    function _refundDigest(
        bytes32 domain,
        bytes32 channelId,
        uint256 nonce,
        uint128 amount
    ) private pure returns (bytes32) {
        bytes32 message = keccak256(abi.encode(REFUND_TYPEHASH, channelId, nonce, amount));
        return MessageHashUtils.toTypedDataHash(domain, message);
    }

    function _batch(
        bytes32 domain,
        VoucherClaim[] calldata rows
    ) private pure returns (bytes32[] memory channelIds, bytes32 digest) {
        channelIds = new bytes32[](rows.length);
        bytes32[] memory entries = new bytes32[](rows.length);
        for (uint256 i = 0; i < rows.length; ++i) {
            Voucher calldata voucher = rows[i].voucher;
            channelIds[i] = _channelId(domain, voucher.channel);
            entries[i] = keccak256(
                abi.encode(CLAIM_ENTRY_TYPEHASH, channelIds[i], voucher.maxClaimableAmount, rows[i].totalClaimed)
            );
        }
        bytes32 message = keccak256(abi.encode(CLAIM_BATCH_TYPEHASH, keccak256(abi.encodePacked(entries))));
        digest = MessageHashUtils.toTypedDataHash(domain, message);
    }
}

/// Brings a payer's tokens to the channels. What the payer signs names the channel, so nobody can send it to another.
abstract contract LocalDepositCollector {
    error OnlyX402BatchSettlement();

    address public constant x402BatchSettlement = 0x4020074e9dF2ce1deE5A9C1b5c3f541D02a10003;

    function collect(
        address payer,
        address token,
        uint256 amount,
        bytes32 channelId,
        bytes calldata collectorData
    ) external {
        if (msg.sender != x402BatchSettlement) revert OnlyX402BatchSettlement();
        _collect(payer, token, amount, channelId, collectorData);
    }

    function _collect(
        address payer,
        address token,
        uint256 amount,
        bytes32 channelId,
        bytes calldata collectorData
    ) internal virtual;
}

/// The overload that takes a contract's signature too.
interface IReceiveWithAuthorization {
    function receiveWithAuthorization(
        address from,
        address to,
        uint256 value,
        uint256 validAfter,
        uint256 validBefore,
        bytes32 nonce,
        bytes memory signature
    ) external;
}

/// The authorization's nonce is the hash of the channel and a salt. Its payee must send it, so the tokens pass through.
contract LocalErc3009DepositCollector is LocalDepositCollector {
    using SafeERC20 for IERC20;

    function _collect(
        address payer,
        address token,
        uint256 amount,
        bytes32 channelId,
        bytes calldata collectorData
    ) internal override {
        (uint256 validAfter, uint256 validBefore, uint256 salt, bytes memory signature) = abi.decode(
            collectorData,
            (uint256, uint256, uint256, bytes)
        );
        IReceiveWithAuthorization(token).receiveWithAuthorization(
            payer,
            address(this),
            amount,
            validAfter,
            validBefore,
            keccak256(abi.encode(channelId, salt)),
            signature
        );
        IERC20(token).safeTransfer(x402BatchSettlement, amount);
    }
}

/// The channel is the permit's witness. The tokens go straight to the channels.
contract LocalPermit2DepositCollector is LocalDepositCollector {
    event EIP2612PermitFailedWithReason(address indexed token, address indexed owner, string reason);
    event EIP2612PermitFailedWithPanic(address indexed token, address indexed owner, uint256 errorCode);
    event EIP2612PermitFailedWithData(address indexed token, address indexed owner, bytes data);

    error Permit2612AmountMismatch();

    LocalPermit2 public constant PERMIT2 = LocalPermit2(0x000000000022D473030F116dDEE9F6B43aC78BA3);
    string public constant DEPOSIT_WITNESS_TYPE_STRING =
        "DepositWitness witness)DepositWitness(bytes32 channelId)TokenPermissions(address token,uint256 amount)";
    bytes32 public constant DEPOSIT_WITNESS_TYPEHASH = keccak256("DepositWitness(bytes32 channelId)");

    function _collect(
        address payer,
        address token,
        uint256 amount,
        bytes32 channelId,
        bytes calldata collectorData
    ) internal override {
        (uint256 nonce, uint256 deadline, bytes memory signature, bytes memory permit2612) = abi.decode(
            collectorData,
            (uint256, uint256, bytes, bytes)
        );
        if (permit2612.length > 0) _permit(payer, token, amount, permit2612);
        PERMIT2.permitWitnessTransferFrom(
            LocalPermit2.PermitTransferFrom(LocalPermit2.TokenPermissions(token, amount), nonce, deadline),
            LocalPermit2.SignatureTransferDetails(x402BatchSettlement, amount),
            payer,
            keccak256(abi.encode(DEPOSIT_WITNESS_TYPEHASH, channelId)),
            DEPOSIT_WITNESS_TYPE_STRING,
            signature
        );
    }

    /// A permit that fails ends nothing: somebody may have sent it before, and then the allowance is there.
    function _permit(address payer, address token, uint256 amount, bytes memory permit2612) private {
        (uint256 value, uint256 deadline, uint8 v, bytes32 r, bytes32 s) = abi.decode(
            permit2612,
            (uint256, uint256, uint8, bytes32, bytes32)
        );
        if (value != amount) revert Permit2612AmountMismatch();
        try IERC20Permit(token).permit(payer, address(PERMIT2), value, deadline, v, r, s) {} catch Error(
            string memory reason
        ) {
            emit EIP2612PermitFailedWithReason(token, payer, reason);
        } catch Panic(uint256 errorCode) {
            emit EIP2612PermitFailedWithPanic(token, payer, errorCode);
        } catch (bytes memory data) {
            emit EIP2612PermitFailedWithData(token, payer, data);
        }
    }
}
