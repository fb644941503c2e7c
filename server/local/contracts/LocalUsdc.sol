// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {ERC3009} from "@openzeppelin/contracts/token/ERC20/extensions/draft-ERC3009.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {MessageHashUtils} from "@openzeppelin/contracts/utils/cryptography/MessageHashUtils.sol";
import {Nonces} from "@openzeppelin/contracts/utils/Nonces.sol";
import {SignatureChecker} from "@openzeppelin/contracts/utils/cryptography/SignatureChecker.sol";

/**
 * USDC of the local chain: behaves like the deployed FiatToken v2.2 where it matters to Purser
 * (functions, events, order of checks, revert strings, signature rules). It is our own source, written from the
 * published interfaces (ERC-20, ERC-2612, ERC-3009) on OpenZeppelin's contracts. One key, the admin, stands for
 * the real token's owner, pauser, blacklister and only minter; on the local chain the faucet holds it.
 *
 * The code is placed at USDC's address without running a constructor. So nothing may depend on one:
 * names are constants, the domain is computed at run time, there are no immutables in the running code
 * (the compile script refuses them), and the admin is written to its storage slot.
 */
contract LocalUsdc is ERC3009, Nonces {
    bytes32 private constant DOMAIN_TYPEHASH =
        keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)");
    bytes32 private constant NAME_HASH = keccak256("USDC");
    bytes32 private constant VERSION_HASH = keccak256("2");
    bytes32 public constant PERMIT_TYPEHASH =
        keccak256("Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)");
    string public constant currency = "USD";

    /// Set in a balance word while the account is blocked, as in FiatToken v2.2: no extra storage read.
    uint256 private constant BLOCKED = 1 << 255;

    event Mint(address indexed minter, address indexed to, uint256 amount);
    event Burn(address indexed burner, uint256 amount);
    event Blacklisted(address indexed _account);
    event UnBlacklisted(address indexed _account);
    event Pause();
    event Unpause();

    mapping(address account => uint256) private _balanceWords;
    uint256 private _supply;
    /// One slot, because every transfer reads `_paused`.
    address private _admin;
    bool private _paused;

    constructor() ERC20("USDC", "USDC") EIP712("USDC", "2") {}

    modifier whenNotPaused() {
        require(!_paused, "Pausable: paused");
        _;
    }

    modifier notBlacklisted(address account) {
        require(!isBlacklisted(account), "Blacklistable: account is blacklisted");
        _;
    }

    // --- what it is -------------------------------------------------------------------------------

    function name() public pure override returns (string memory) {
        return "USDC";
    }

    function symbol() public pure override returns (string memory) {
        return "USDC";
    }

    function decimals() public pure override returns (uint8) {
        return 6;
    }

    function version() external pure returns (string memory) {
        return "2";
    }

    function DOMAIN_SEPARATOR() public view returns (bytes32) {
        return keccak256(abi.encode(DOMAIN_TYPEHASH, NAME_HASH, VERSION_HASH, block.chainid, address(this)));
    }

    function eip712Domain()
        public
        view
        override
        returns (bytes1, string memory, string memory, uint256, address, bytes32, uint256[] memory)
    {
        return (hex"0f", "USDC", "2", block.chainid, address(this), bytes32(0), new uint256[](0));
    }

    function _hashTypedDataV4(bytes32 structHash) internal view override returns (bytes32) {
        return MessageHashUtils.toTypedDataHash(DOMAIN_SEPARATOR(), structHash);
    }

    function owner() external view returns (address) {
        return _admin;
    }

    function paused() external view returns (bool) {
        return _paused;
    }

    function isMinter(address account) external view returns (bool) {
        return account == _admin;
    }

    function isBlacklisted(address account) public view returns (bool) {
        return _balanceWords[account] & BLOCKED != 0;
    }

    function balanceOf(address account) public view override returns (uint256) {
        return _balanceWords[account] & ~BLOCKED;
    }

    function totalSupply() public view override returns (uint256) {
        return _supply;
    }

    // --- moving it --------------------------------------------------------------------------------

    function transfer(
        address to,
        uint256 value
    ) public override whenNotPaused notBlacklisted(msg.sender) notBlacklisted(to) returns (bool) {
        _update(msg.sender, to, value);
        return true;
    }

    function transferFrom(
        address from,
        address to,
        uint256 value
    )
        public
        override
        whenNotPaused
        notBlacklisted(msg.sender)
        notBlacklisted(from)
        notBlacklisted(to)
        returns (bool)
    {
        uint256 allowed = allowance(from, msg.sender);
        require(value <= allowed, "ERC20: transfer amount exceeds allowance");
        if (allowed != type(uint256).max) _approve(from, msg.sender, allowed - value, false);
        _update(from, to, value);
        return true;
    }

    function approve(
        address spender,
        uint256 value
    ) public override whenNotPaused notBlacklisted(msg.sender) notBlacklisted(spender) returns (bool) {
        _requireApproval(msg.sender, spender);
        _approve(msg.sender, spender, value);
        return true;
    }

    function _update(address from, address to, uint256 value) internal override {
        require(from != address(0), "ERC20: transfer from the zero address");
        require(to != address(0), "ERC20: transfer to the zero address");
        uint256 balance = _balanceWords[from];
        require(value <= balance, "ERC20: transfer amount exceeds balance");
        unchecked {
            // The supply is kept under 2^255, so no sum reaches the blocked bit.
            _balanceWords[from] = balance - value;
            _balanceWords[to] += value;
        }
        emit Transfer(from, to, value);
    }

    function _requireApproval(address from, address spender) private pure {
        require(from != address(0), "ERC20: approve from the zero address");
        require(spender != address(0), "ERC20: approve to the zero address");
    }

    // --- ERC-3009 ---------------------------------------------------------------------------------

    function transferWithAuthorization(
        address from,
        address to,
        uint256 value,
        uint256 validAfter,
        uint256 validBefore,
        bytes32 nonce,
        uint8 v,
        bytes32 r,
        bytes32 s
    ) public override {
        transferWithAuthorization(from, to, value, validAfter, validBefore, nonce, abi.encodePacked(r, s, v));
    }

    function transferWithAuthorization(
        address from,
        address to,
        uint256 value,
        uint256 validAfter,
        uint256 validBefore,
        bytes32 nonce,
        bytes memory signature
    ) public whenNotPaused notBlacklisted(from) notBlacklisted(to) {
        _checkAuthorization(from, nonce, validAfter, validBefore);
        _checkSignature(
            from,
            keccak256(
                abi.encode(TRANSFER_WITH_AUTHORIZATION_TYPEHASH, from, to, value, validAfter, validBefore, nonce)
            ),
            signature,
            "FiatTokenV2: invalid signature"
        );
        _useAuthorization(from, to, value, nonce);
    }

    function receiveWithAuthorization(
        address from,
        address to,
        uint256 value,
        uint256 validAfter,
        uint256 validBefore,
        bytes32 nonce,
        uint8 v,
        bytes32 r,
        bytes32 s
    ) public override {
        receiveWithAuthorization(from, to, value, validAfter, validBefore, nonce, abi.encodePacked(r, s, v));
    }

    function receiveWithAuthorization(
        address from,
        address to,
        uint256 value,
        uint256 validAfter,
        uint256 validBefore,
        bytes32 nonce,
        bytes memory signature
    ) public whenNotPaused notBlacklisted(from) notBlacklisted(to) {
        require(to == msg.sender, "FiatTokenV2: caller must be the payee");
        _checkAuthorization(from, nonce, validAfter, validBefore);
        _checkSignature(
            from,
            keccak256(
                abi.encode(RECEIVE_WITH_AUTHORIZATION_TYPEHASH, from, to, value, validAfter, validBefore, nonce)
            ),
            signature,
            "FiatTokenV2: invalid signature"
        );
        _useAuthorization(from, to, value, nonce);
    }

    function cancelAuthorization(
        address authorizer,
        bytes32 nonce,
        uint8 v,
        bytes32 r,
        bytes32 s
    ) public override {
        cancelAuthorization(authorizer, nonce, abi.encodePacked(r, s, v));
    }

    function cancelAuthorization(address authorizer, bytes32 nonce, bytes memory signature) public whenNotPaused {
        _checkUnused(authorizer, nonce);
        _checkSignature(
            authorizer,
            keccak256(abi.encode(CANCEL_AUTHORIZATION_TYPEHASH, authorizer, nonce)),
            signature,
            "FiatTokenV2: invalid signature"
        );
        _cancelAuthorization(authorizer, nonce);
    }

    function _useAuthorization(address from, address to, uint256 value, bytes32 nonce) private {
        _consumeNonce(from, nonce);
        emit AuthorizationUsed(from, nonce);
        _update(from, to, value);
    }

    /// The whole 256-bit values are times: no second clock is encoded in them.
    function _checkAuthorization(
        address authorizer,
        bytes32 nonce,
        uint256 validAfter,
        uint256 validBefore
    ) private view {
        require(block.timestamp > validAfter, "FiatTokenV2: authorization is not yet valid");
        require(block.timestamp < validBefore, "FiatTokenV2: authorization is expired");
        _checkUnused(authorizer, nonce);
    }

    function _checkUnused(address authorizer, bytes32 nonce) private view {
        require(!authorizationState(authorizer, nonce), "FiatTokenV2: authorization is used or canceled");
    }

    // --- ERC-2612 ---------------------------------------------------------------------------------

    function permit(
        address from,
        address spender,
        uint256 value,
        uint256 deadline,
        uint8 v,
        bytes32 r,
        bytes32 s
    ) external {
        permit(from, spender, value, deadline, abi.encodePacked(r, s, v));
    }

    function permit(
        address from,
        address spender,
        uint256 value,
        uint256 deadline,
        bytes memory signature
    ) public whenNotPaused notBlacklisted(from) notBlacklisted(spender) {
        require(deadline >= block.timestamp, "FiatTokenV2: permit is expired");
        _checkSignature(
            from,
            keccak256(abi.encode(PERMIT_TYPEHASH, from, spender, value, _useNonce(from), deadline)),
            signature,
            "EIP2612: invalid signature"
        );
        _requireApproval(from, spender);
        _approve(from, spender, value);
    }

    /// Signatures of an account with code (also a delegated EOA) are verified by ERC-1271, all others by ecrecover.
    function _checkSignature(
        address signer,
        bytes32 structHash,
        bytes memory signature,
        string memory complaint
    ) private view {
        bytes32 digest = _hashTypedDataV4(structHash);
        if (signer.code.length > 0) {
            require(SignatureChecker.isValidERC1271SignatureNow(signer, digest, signature), complaint);
            return;
        }
        (address recovered, ECDSA.RecoverError problem, ) = ECDSA.tryRecover(digest, signature);
        if (problem != ECDSA.RecoverError.NoError) _explain(problem, signature);
        require(recovered == signer, complaint);
    }

    function _explain(ECDSA.RecoverError problem, bytes memory signature) private pure {
        require(
            problem != ECDSA.RecoverError.InvalidSignatureLength,
            "ECRecover: invalid signature length"
        );
        require(
            problem != ECDSA.RecoverError.InvalidSignatureS,
            "ECRecover: invalid signature 's' value"
        );
        uint8 v = uint8(signature[64]);
        require(v == 27 || v == 28, "ECRecover: invalid signature 'v' value");
        revert("ECRecover: invalid signature");
    }

    // --- the admin --------------------------------------------------------------------------------

    function mint(
        address to,
        uint256 amount
    ) external whenNotPaused notBlacklisted(msg.sender) notBlacklisted(to) returns (bool) {
        require(msg.sender == _admin, "FiatToken: caller is not a minter");
        require(to != address(0), "FiatToken: mint to the zero address");
        require(amount > 0, "FiatToken: mint amount not greater than 0");
        _supply += amount;
        require(_supply < BLOCKED, "FiatToken: mint amount exceeds minterAllowance");
        unchecked {
            _balanceWords[to] += amount;
        }
        emit Mint(msg.sender, to, amount);
        emit Transfer(address(0), to, amount);
        return true;
    }

    function burn(uint256 amount) external whenNotPaused notBlacklisted(msg.sender) {
        require(msg.sender == _admin, "FiatToken: caller is not a minter");
        require(amount > 0, "FiatToken: burn amount not greater than 0");
        require(_balanceWords[msg.sender] >= amount, "FiatToken: burn amount exceeds balance");
        unchecked {
            _supply -= amount;
            _balanceWords[msg.sender] -= amount;
        }
        emit Burn(msg.sender, amount);
        emit Transfer(msg.sender, address(0), amount);
    }

    function blacklist(address account) external {
        require(msg.sender == _admin, "Blacklistable: caller is not the blacklister");
        _balanceWords[account] |= BLOCKED;
        emit Blacklisted(account);
    }

    function unBlacklist(address account) external {
        require(msg.sender == _admin, "Blacklistable: caller is not the blacklister");
        _balanceWords[account] &= ~BLOCKED;
        emit UnBlacklisted(account);
    }

    function pause() external {
        require(msg.sender == _admin, "Pausable: caller is not the pauser");
        _paused = true;
        emit Pause();
    }

    function unpause() external {
        require(msg.sender == _admin, "Pausable: caller is not the pauser");
        _paused = false;
        emit Unpause();
    }
}
