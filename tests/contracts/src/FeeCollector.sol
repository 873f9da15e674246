// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.20;

/// Announces fees the way LiFi's FeeCollector does. It holds no money; the log is all that an indexer reads.
contract FeeCollector {
    event FeesCollected(
        address indexed _token, address indexed _integrator, uint256 _integratorFee, uint256 _lifiFee
    );

    function collectTokenFees(address token, uint256 integratorFee, uint256 lifiFee, address integrator) external {
        emit FeesCollected(token, integrator, integratorFee, lifiFee);
    }

    function collectNativeFees(uint256 integratorFee, uint256 lifiFee, address integrator) external payable {
        require(msg.value >= integratorFee + lifiFee, "not enough native");
        emit FeesCollected(address(0), integrator, integratorFee, lifiFee);
    }

    /// Many events in one transaction, for tests and benchmarks of the indexer.
    function collectMany(address token, address integrator, uint256 count) external {
        for (uint256 i = 0; i < count; i++) {
            emit FeesCollected(token, integrator, i + 1, i);
        }
    }
}
