package frameworks

import (
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"
	"github.com/labstack/echo/v4"

	"github.com/zlimit/zlimit-go/httplimit"
	"github.com/zlimit/zlimit-go/zlimit"
)

// newLimit is the middleware of all of them: a request of each key.
func newLimit(limiter *zlimit.RateLimiter) func(http.Handler) http.Handler {
	return httplimit.New(limiter, httplimit.Requests("api", "rpm", httplimit.ByHeader("X-API-Key")))
}

// Chi takes middleware of net/http as it is.
func Chi(limiter *zlimit.RateLimiter) http.Handler {
	r := chi.NewRouter()
	r.Use(newLimit(limiter))
	r.Get("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) })
	return r
}

// Echo wraps it.
func Echo(limiter *zlimit.RateLimiter) http.Handler {
	e := echo.New()
	e.Use(echo.WrapMiddleware(newLimit(limiter)))
	e.GET("/", func(c echo.Context) error { return c.String(http.StatusOK, "hello") })
	return e
}

// Gin takes a handler that goes on with the next one from within the middleware, and stops when it was not called.
func Gin(limiter *zlimit.RateLimiter) http.Handler {
	limit := newLimit(limiter)
	gin.SetMode(gin.ReleaseMode)
	g := gin.New()
	g.Use(func(c *gin.Context) {
		admitted := false
		limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			admitted = true
			c.Request = r // whose context has the lease
			c.Next()
		})).ServeHTTP(c.Writer, c.Request)
		if !admitted {
			c.Abort()
		}
	})
	g.GET("/", func(c *gin.Context) { c.String(http.StatusOK, "hello") })
	return g
}

// Fiber does not use net/http. Its adaptor translates the request and the middleware's answer. The middleware returns
// before the handler runs, so the lease is settled already, and a handler cannot correct it.
func Fiber(limiter *zlimit.RateLimiter) *fiber.App {
	app := fiber.New()
	app.Use(adaptor.HTTPMiddleware(newLimit(limiter)))
	app.Get("/", func(c *fiber.Ctx) error { return c.SendString("hello") })
	return app
}
