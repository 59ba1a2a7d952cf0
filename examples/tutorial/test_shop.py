import anyio
from guarded import hooks
from shop import cancel_order, shop

from mcp_toolset import Rules


def test_orders_of_b_stay() -> None:
    result = anyio.run(lambda: shop.view().execute(cancel_order, {"order": "B7"}, rules=Rules(hooks)))
    assert result.is_error
    assert "by phone" in result.text
